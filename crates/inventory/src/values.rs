//! The values of a record set as one string: 16 bytes where there are 10,000 names with one address each.

use std::fmt;

/// Values in the order in which they were given, none of them empty.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Values(Box<str>);

impl Values {
    /// The values one by one.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.split('\n').filter(|value| !value.is_empty())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
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
        Self(joined.into_boxed_str())
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
    fn the_order_does_not_matter_for_a_set() {
        let set = |values: &[&str]| values.iter().collect::<Values>();
        assert!(set(&["a", "b"]).same_set(&set(&["b", "a", "a"])));
        assert!(!set(&["a", "b"]).same_set(&set(&["a"])));
    }
}
