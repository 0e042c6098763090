//! The values of a record set as one text. A short one, such as an address, is stored in place.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

/// Octets that are stored in place.
const SHORT: usize = 22;

/// Values in the order in which they were given, none of them empty.
#[derive(Clone)]
pub struct Values(Text);

/// The values, a line each.
#[derive(Clone)]
enum Text {
    Short(u8, [u8; SHORT]),
    Long(Box<str>),
}

impl Values {
    /// None.
    pub(crate) const EMPTY: Self = Self(Text::Short(0, [0; SHORT]));

    fn text(&self) -> &str {
        match &self.0 {
            Text::Short(len, octets) => {
                octets.get(..usize::from(*len)).and_then(|text| std::str::from_utf8(text).ok()).unwrap_or_default()
            }
            Text::Long(text) => text,
        }
    }

    /// The values one by one.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.text().split('\n').filter(|value| !value.is_empty())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        matches!(self.0, Text::Short(0, _))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.iter().count()
    }

    /// Whether both have the same values, in any order.
    pub fn same_set(&self, other: &Self) -> bool {
        if self == other {
            return true;
        }
        let sorted = |values: &Self| {
            let mut sorted: Vec<Box<str>> = values.iter().map(Box::from).collect();
            sorted.sort_unstable();
            sorted.dedup();
            sorted
        };
        sorted(self) == sorted(other)
    }
}

impl Values {
    /// Of values that are joined already.
    fn joined(text: String) -> Self {
        let mut octets = [0; SHORT];
        match (octets.get_mut(..text.len()), u8::try_from(text.len())) {
            (Some(place), Ok(len)) => {
                place.copy_from_slice(text.as_bytes());
                Self(Text::Short(len, octets))
            }
            _ => Self(Text::Long(text.into_boxed_str())),
        }
    }
}

impl Default for Values {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl PartialEq for Values {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Text::Short(len, octets), Text::Short(other_len, others)) => len == other_len && octets == others,
            (Text::Long(text), Text::Long(other)) => text == other,
            _ => false,
        }
    }
}

impl Eq for Values {}

impl PartialOrd for Values {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Values {
    fn cmp(&self, other: &Self) -> Ordering {
        self.text().cmp(other.text())
    }
}

impl Hash for Values {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text().hash(state);
    }
}

impl<T: AsRef<str>> FromIterator<T> for Values {
    /// A line break within a value becomes a blank, because values are hostile input and a line break separates them here.
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        let mut joined = String::new();
        for value in values.into_iter().filter(|value| !value.as_ref().is_empty()) {
            if !joined.is_empty() {
                joined.push('\n');
            }
            joined.extend(value.as_ref().chars().map(|character| if character == '\n' { ' ' } else { character }));
        }
        Self::joined(joined)
    }
}

impl fmt::Debug for Values {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_given_back_without_the_empty_ones() {
        let values: Values = ["192.0.2.1", "", "192.0.2.2"].into_iter().collect();
        assert_eq!(values.iter().collect::<Vec<_>>(), ["192.0.2.1", "192.0.2.2"]);
        assert_eq!((values.len(), values.is_empty()), (2, false));
        assert_eq!((Values::default().len(), Values::default().is_empty()), (0, true));
    }

    #[test]
    fn a_line_break_in_a_value_does_not_make_two_values() {
        let values: Values = ["a\nb"].into_iter().collect();
        assert_eq!(values.iter().collect::<Vec<_>>(), ["a b"]);
    }

    #[test]
    fn short_and_long_values_compare_by_their_text() {
        let text = |length: usize| std::iter::once("x".repeat(length)).collect::<Values>();
        for length in [1, SHORT - 1, SHORT, SHORT + 1, 300] {
            assert_eq!(text(length).iter().collect::<Vec<_>>(), ["x".repeat(length)]);
            assert_eq!(text(length), text(length));
            assert!(text(length) < text(length + 1) && text(length) != text(length + 1));
        }
        assert!(std::mem::size_of::<Values>() <= 24);
    }

    #[test]
    fn the_order_does_not_matter_for_a_set() {
        let set = |values: &[&str]| values.iter().collect::<Values>();
        assert!(set(&["a", "b"]).same_set(&set(&["b", "a", "a"])));
        assert!(!set(&["a", "b"]).same_set(&set(&["a"])));
    }
}
