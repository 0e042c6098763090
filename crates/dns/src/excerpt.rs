//! Quotes hostile input for an error message: escaped, and cut to a length that fits an event or a condition.

/// How many characters of the input a message repeats.
const SHOWN: usize = 80;

/// The input in quotes, control characters escaped, at most [`SHOWN`] characters.
pub(crate) fn excerpt(input: &str) -> String {
    match input.char_indices().nth(SHOWN) {
        Some((cut, _)) => format!("{:?}…", input.get(..cut).unwrap_or_default()),
        None => format!("{input:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_input_is_cut_at_a_character_boundary() {
        let shown = excerpt(&"ü".repeat(500));
        assert_eq!(shown.chars().filter(|c| *c == 'ü').count(), SHOWN);
        assert!(shown.ends_with('…'));
    }

    #[test]
    fn a_newline_is_shown_escaped() {
        assert_eq!(excerpt("a\nb"), r#""a\nb""#);
    }
}
