//! Who owns a name and what may change: claims, three-way diff, deletion guards.
