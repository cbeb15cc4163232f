//! The colours of series.

/// A colour that people with any of the common colour-vision deficiencies can tell from the others
/// (Okabe and Ito, "Color universal design", 2008; the two light ones darkened so that they show on white).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Colour {
    /// Blue, the first series' colour.
    Blue,
    /// Vermilion.
    Vermilion,
    /// Bluish green.
    Green,
    /// Reddish purple.
    Purple,
    /// Orange.
    Orange,
    /// Grey, for what is only there to compare with.
    Grey,
}

impl Colour {
    /// The colour of the series number `index` where none is chosen; they repeat after the last.
    pub const fn of_series(index: usize) -> Self {
        match index % 6 {
            0 => Self::Blue,
            1 => Self::Vermilion,
            2 => Self::Green,
            3 => Self::Purple,
            4 => Self::Orange,
            _ => Self::Grey,
        }
    }

    /// The colour as SVG spells it. Each has a contrast of at least 3:1 to white and to the dark background.
    pub(super) const fn hex(self) -> &'static str {
        match self {
            Self::Blue => "#2f81c4",
            Self::Vermilion => "#d55e00",
            Self::Green => "#009e73",
            Self::Purple => "#b5659a",
            Self::Orange => "#b98300",
            Self::Grey => "#7d8590",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// WCAG 2.2, relative luminance.
    fn luminance(hex: &str) -> f64 {
        let channel = |at: usize| {
            let value = f64::from(u8::from_str_radix(&hex[at..at + 2], 16).unwrap()) / 255.0;
            if value <= 0.040_45 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * channel(1) + 0.7152 * channel(3) + 0.0722 * channel(5)
    }

    #[test]
    fn every_colour_shows_on_the_light_and_on_the_dark_background() {
        for index in 0..6 {
            let colour = luminance(Colour::of_series(index).hex());
            let on_light = (luminance("#ffffff") + 0.05) / (colour + 0.05);
            let on_dark = (colour + 0.05) / (luminance("#14171c") + 0.05);
            assert!(on_light >= 3.0 && on_dark >= 3.0, "series {index}: {on_light:.2} and {on_dark:.2}");
        }
    }
}
