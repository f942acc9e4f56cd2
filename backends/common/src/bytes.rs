//! Sizes in binary units.
use std::fmt;

/// A number of bytes for people: `512 B`, `1.50 GiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BinaryBytes(pub u64);

impl fmt::Display for BinaryBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
        match units.into_iter().find(|&(bits, _)| self.0 >> bits > 0) {
            Some((bits, unit)) => write!(f, "{:.2} {unit}", self.0 as f64 / (1u64 << bits) as f64),
            None => write!(f, "{} B", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::BinaryBytes;

    #[test]
    fn the_largest_unit_that_leaves_a_whole_is_taken() {
        let text = |bytes| BinaryBytes(bytes).to_string();
        assert_eq!(text(1023), "1023 B");
        assert_eq!(text(1024), "1.00 KiB");
        assert_eq!(text(3 << 29), "1.50 GiB");
        assert_eq!(text(5 << 40), "5.00 TiB");
    }
}
