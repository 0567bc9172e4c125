//! Pictures: pixels to PNG, which every front end shows.

use image::codecs::png::{CompressionType, FilterType, PngEncoder};
use image::{ExtendedColorType, ImageEncoder, ImageError};

/// Why pixels are no picture.
#[derive(Debug, thiserror::Error)]
pub enum PictureError {
    #[error("a picture has 1, 3 or 4 channels, not {0}")]
    Channels(u32),
    #[error(
        "{width} × {height} pixels of {channels} bytes are {expected} bytes, {found} were given"
    )]
    Size {
        width: u32,
        height: u32,
        channels: u32,
        expected: u64,
        found: usize,
    },
    #[error(transparent)]
    Encode(#[from] ImageError),
}

/// A PNG of `pixels`: rows from the top, 8 bits for each of 1 (grey), 3 (RGB) or 4 (RGBA) channels.
pub fn png(pixels: &[u8], width: u32, height: u32, channels: u32) -> Result<Vec<u8>, PictureError> {
    let colour = match channels {
        1 => ExtendedColorType::L8,
        3 => ExtendedColorType::Rgb8,
        4 => ExtendedColorType::Rgba8,
        _ => return Err(PictureError::Channels(channels)),
    };
    let expected = (u64::from(width) * u64::from(height)).saturating_mul(u64::from(channels));
    if expected == 0 || expected != pixels.len() as u64 {
        return Err(PictureError::Size {
            width,
            height,
            channels,
            expected,
            found: pixels.len(),
        });
    }
    let mut bytes = Vec::new();
    PngEncoder::new_with_quality(&mut bytes, CompressionType::Fast, FilterType::Adaptive)
        .write_image(pixels, width, height, colour)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_survives_the_way_to_png_and_back() {
        let pixels = [255, 0, 0, 0, 255, 0, 0, 0, 255, 9, 8, 7];
        let bytes = png(&pixels, 2, 2, 3).unwrap();
        let read = image::load_from_memory(&bytes).unwrap();
        assert_eq!((read.width(), read.height()), (2, 2));
        assert_eq!(read.to_rgb8().into_raw(), pixels);
    }

    #[test]
    fn pixels_that_do_not_fit_are_refused() {
        assert_eq!(
            png(&[0; 5], 2, 2, 1).unwrap_err().to_string(),
            "2 × 2 pixels of 1 bytes are 4 bytes, 5 were given"
        );
        assert_eq!(
            png(&[0; 8], 2, 2, 2).unwrap_err().to_string(),
            "a picture has 1, 3 or 4 channels, not 2"
        );
        assert!(png(&[], 0, 0, 1).is_err());
        // Four times this is 4, for who counts in 64 bits only.
        assert!(png(&[0; 4], 1_380_655_685, 3_340_214_413, 4).is_err());
    }
}
