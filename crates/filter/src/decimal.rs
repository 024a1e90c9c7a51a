//! Decimal numbers of any size, compared exactly.

use std::cmp::Ordering;

/// A decimal number in its one canonical form: sign × 0.digits × 10^point, where the first and the last digit are not
/// zero. Zero has no digits. So `300`, `300.0` and `3e2` are equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decimal {
    is_negative: bool,
    /// ASCII digits.
    digits: Vec<u8>,
    /// Position of the decimal point after the begin of the digits; 0 for zero.
    point: i64,
}

impl Decimal {
    /// Reads `-12.5e3`, and also a plus sign, zeros in front, and a point without digits on one side, as producers write
    /// them in an attribute. `None` for text of another form. Cost: linear in the text.
    pub fn parse(text: &str) -> Option<Self> {
        let (is_negative, text) = match text.as_bytes().first()? {
            b'-' => (true, &text[1..]),
            b'+' => (false, &text[1..]),
            _ => (false, text),
        };
        let (mantissa, exponent) = match text.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, read_exponent(exponent)?),
            None => (text, 0),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let mut digits = [whole.as_bytes(), fraction.as_bytes()].concat();
        if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
            return None;
        }
        let Some(zeros) = digits.iter().position(|digit| *digit != b'0') else {
            return Some(Self { is_negative: false, digits: Vec::new(), point: 0 });
        };
        let end = digits.iter().rposition(|digit| *digit != b'0').map_or(0, |last| last + 1);
        digits.truncate(end);
        digits.drain(..zeros);
        let point = exponent.saturating_add(signed(whole.len())).saturating_sub(signed(zeros));
        Some(Self { is_negative, digits, point })
    }

    /// Number of digits after the point that are needed to write the number without an exponent.
    pub fn fraction_digits(&self) -> u64 {
        u64::try_from(signed(self.digits.len()).saturating_sub(self.point)).unwrap_or(0)
    }

    /// The number without its sign.
    pub fn size(&self) -> Self {
        Self { is_negative: false, ..self.clone() }
    }

    /// Compares the sizes.
    fn compare_sizes(&self, other: &Self) -> Ordering {
        match (self.digits.is_empty(), other.digits.is_empty()) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
            (false, false) => self.point.cmp(&other.point).then_with(|| self.digits.cmp(&other.digits)),
        }
    }
}

impl Ord for Decimal {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self.is_negative, other.is_negative) {
            (false, false) => self.compare_sizes(other),
            (true, true) => other.compare_sizes(self),
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
        }
    }
}

impl PartialOrd for Decimal {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Reads an exponent. One that is too large for `i64` counts as the largest.
fn read_exponent(text: &str) -> Option<i64> {
    let (is_negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let size = digits.parse().unwrap_or(i64::MAX);
    Some(if is_negative { -size } else { size })
}

fn signed(length: usize) -> i64 {
    i64::try_from(length).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decimal(text: &str) -> Decimal {
        Decimal::parse(text).unwrap()
    }

    #[test]
    fn notations_of_one_number_are_equal() {
        for same in [
            &["300", "300.0", "3e2", "+300", "0300", "3.00E+2", "30000e-2", "300."][..],
            &["0.1", ".1", "1e-1", "0.10", "10e-2"],
            &["0", "-0", "0.000", "0e99", "-0e-99"],
            &["-12.5", "-1.25e1", "-012.50"],
        ] {
            for pair in same.windows(2) {
                assert_eq!(decimal(pair[0]), decimal(pair[1]), "{pair:?}");
            }
        }
    }

    #[test]
    fn order_is_exact_where_floats_round() {
        let ascending = [
            "-1e999999999999999999999",
            "-1e400",
            "-2",
            "-1.5",
            "-1.00000000000000000001",
            "-1",
            "-1e-400",
            "0",
            "1e-999999999999999999999",
            "1e-400",
            "0.1",
            "0.10000000000000000001",
            "0.3",
            "0.30000000000000004",
            "9007199254740992",
            "9007199254740993",
            "1e400",
            "1e999999999999999999999",
        ];
        for (place, smaller) in ascending.iter().enumerate() {
            for larger in &ascending[place + 1..] {
                assert!(decimal(smaller) < decimal(larger), "{smaller} < {larger}");
            }
        }
    }

    #[test]
    fn other_text_is_no_number() {
        for text in [
            "", "-", "+", ".", "e5", "1e", "1e+", "1e1.5", "--1", "1 ", " 1", "0x10", "NaN", "1_0", "١",
            "1.2.3",
        ] {
            assert_eq!(Decimal::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn fraction_digits_are_those_without_an_exponent() {
        for (text, digits) in [("1", 0), ("1.50", 1), ("1.23456", 5), ("1e-7", 7), ("123e3", 0), ("0", 0)] {
            assert_eq!(decimal(text).fraction_digits(), digits, "{text}");
        }
    }

    proptest! {
        #[test]
        fn decimals_are_ordered_like_scaled_integers(a: i32, b: i32, scale in 0i32..12) {
            let texts = [a, b].map(|number| format!("{number}e-{scale}"));
            prop_assert_eq!(decimal(&texts[0]).cmp(&decimal(&texts[1])), a.cmp(&b));
        }
    }
}
