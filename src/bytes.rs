//! Sizes for people.
use std::fmt;

/// A number of bytes that displays in decimal units, as disks are sold: `98.21 MB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecimalBytes(pub u64);

impl fmt::Display for DecimalBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut amount = self.0 as f64;
        let mut unit = "B";
        for larger in ["kB", "MB", "GB", "TB", "PB", "EB"] {
            if amount < 1000.0 {
                break;
            }
            amount /= 1000.0;
            unit = larger;
        }
        match unit {
            "B" => write!(f, "{} B", self.0),
            _ => write!(f, "{amount:.2} {unit}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_go_by_thousands() {
        for (bytes, text) in
            [(0, "0 B"), (999, "999 B"), (1000, "1.00 kB"), (98_210_000, "98.21 MB"), (1 << 32, "4.29 GB")]
        {
            assert_eq!(DecimalBytes(bytes).to_string(), text);
        }
    }
}
