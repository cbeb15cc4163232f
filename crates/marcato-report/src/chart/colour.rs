//! Colours of series.

/// A colour that people with any of the common colour-vision deficiencies can distinguish from the
/// others, on white and on the dark background. Each has a separate tone for either background. The
/// hues are those of Okabe and Ito ("Color universal design", 2008). The tones also differ in
/// lightness, because not everyone can distinguish hues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
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
    /// Grey, for series that serve only as comparison.
    Grey,
}

impl Colour {
    /// Every colour, in the order in which series take them.
    pub const ALL: [Self; 6] =
        [Self::Blue, Self::Vermilion, Self::Green, Self::Purple, Self::Orange, Self::Grey];

    /// Suffix of the class that an image's style gives this colour: `mc-f-` fills and `mc-s-`
    /// strokes with it.
    pub(super) const fn class(self) -> &'static str {
        match self {
            Self::Blue => "blue",
            Self::Vermilion => "vermilion",
            Self::Green => "green",
            Self::Purple => "purple",
            Self::Orange => "orange",
            Self::Grey => "grey",
        }
    }

    /// Tone on white.
    pub(super) const fn light(self) -> &'static str {
        match self {
            Self::Blue => "#1f8fe6",
            Self::Vermilion => "#a53200",
            Self::Green => "#0b5f4b",
            Self::Purple => "#651a80",
            Self::Orange => "#bd8b00",
            Self::Grey => "#8b9198",
        }
    }

    /// Tone on the dark background.
    pub(super) const fn dark(self) -> &'static str {
        match self {
            Self::Blue => "#3f80ff",
            Self::Vermilion => "#d8561a",
            Self::Green => "#3de59b",
            Self::Purple => "#b065a8",
            Self::Orange => "#ffcb2e",
            Self::Grey => "#c9d6e2",
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Linear-light red, green and blue: the sRGB transfer function of IEC 61966-2-1.
    fn linear(hex: &str) -> [f64; 3] {
        [1, 3, 5].map(|at| {
            let value = f64::from(u8::from_str_radix(&hex[at..at + 2], 16).unwrap()) / 255.0;
            if value <= 0.040_45 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        })
    }

    /// WCAG 2.2, relative luminance.
    fn luminance(hex: &str) -> f64 {
        let [red, green, blue] = linear(hex);
        0.2126 * red + 0.7152 * green + 0.0722 * blue
    }

    /// Contrast ratio of WCAG 2.2.
    fn contrast(a: &str, b: &str) -> f64 {
        let (a, b) = (luminance(a) + 0.05, luminance(b) + 0.05);
        a.max(b) / a.min(b)
    }

    /// CIE L*a*b* under D65.
    fn lab(rgb: [f64; 3]) -> [f64; 3] {
        let row = |r: f64, g: f64, b: f64, white: f64| {
            let value = (r * rgb[0] + g * rgb[1] + b * rgb[2]) / white;
            if value > 0.008_856 { value.cbrt() } else { 7.787 * value + 16.0 / 116.0 }
        };
        let x = row(0.4124, 0.3576, 0.1805, 0.9505);
        let y = row(0.2126, 0.7152, 0.0722, 1.0);
        let z = row(0.0193, 0.1192, 0.9505, 1.089);
        [116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)]
    }

    /// Machado, Oliveira and Fernandes, "A physiologically-based model for simulation of color
    /// vision deficiency" (2009), severity 1.
    const VISION: [(&str, [[f64; 3]; 3]); 4] = [
        ("normal", [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]),
        (
            "protanopia",
            [
                [0.152_286, 1.052_583, -0.204_868],
                [0.114_503, 0.786_281, 0.099_216],
                [-0.003_882, -0.048_116, 1.051_998],
            ],
        ),
        (
            "deuteranopia",
            [
                [0.367_322, 0.860_646, -0.227_968],
                [0.280_085, 0.672_501, 0.047_413],
                [-0.011_82, 0.042_94, 0.968_881],
            ],
        ),
        (
            "tritanopia",
            [
                [1.255_528, -0.076_749, -0.178_779],
                [-0.078_411, 0.930_809, 0.147_602],
                [0.004_733, 0.691_367, 0.303_9],
            ],
        ),
    ];

    #[test]
    fn every_colour_shows_on_the_light_and_on_the_dark_background() {
        for colour in Colour::ALL {
            let shown = (contrast(colour.light(), "#ffffff"), contrast(colour.dark(), "#14171c"));
            // WCAG 2.2 §1.4.11: graphics need a contrast of 3:1 at least.
            assert!(shown.0 >= 3.0 && shown.1 >= 3.0, "{colour:?}: {shown:?}");
        }
    }

    #[test]
    fn every_two_colours_differ_for_every_eye() {
        for (name, matrix) in VISION {
            for tone in [Colour::light, Colour::dark] {
                for (at, a) in Colour::ALL.into_iter().enumerate() {
                    for b in &Colour::ALL[..at] {
                        let seen = |colour: Colour| {
                            let rgb = linear(tone(colour));
                            let mix = |row: [f64; 3]| {
                                row.iter().zip(rgb).map(|(a, b)| a * b).sum::<f64>().clamp(0.0, 1.0)
                            };
                            lab(matrix.map(mix))
                        };
                        let (one, other) = (seen(a), seen(*b));
                        let apart = one.iter().zip(other).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt();
                        // A difference of 2.3 is just noticeable. Lines are thin, so it must be
                        // many times that.
                        assert!(apart >= 20.0, "{name}: {a:?} and {b:?} differ by {apart:.1}");
                    }
                }
            }
        }
    }
}
