//! Pictures: pixels to PNG, which every front end shows.

use png::{BitDepth, ColorType, Compression, Encoder, EncodingError, Filter};

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
    Encode(#[from] EncodingError),
}

/// A PNG of `pixels`: rows from the top, 8 bits for each of 1 (grey), 3 (RGB) or 4 (RGBA) channels.
pub fn png(pixels: &[u8], width: u32, height: u32, channels: u32) -> Result<Vec<u8>, PictureError> {
    let colour = match channels {
        1 => ColorType::Grayscale,
        3 => ColorType::Rgb,
        4 => ColorType::Rgba,
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
    let mut encoder = Encoder::new(&mut bytes, width, height);
    encoder.set_color(colour);
    encoder.set_depth(BitDepth::Eight);
    encoder.set_compression(Compression::Fast);
    encoder.set_filter(Filter::Adaptive);
    encoder.write_header()?.write_image_data(pixels)?;
    Ok(bytes)
}

/// A small PNG of columns that stand on the lower edge, `heights` of them from 0 to `rows`, in one
/// colour on nothing.
pub fn columns(heights: &[u8], rows: u8, colour: [u8; 3]) -> Result<Vec<u8>, PictureError> {
    let mut bytes = Vec::new();
    let width = u32::try_from(heights.len()).unwrap_or(u32::MAX);
    let mut encoder = Encoder::new(&mut bytes, width, rows.into());
    encoder.set_color(ColorType::Indexed);
    encoder.set_depth(BitDepth::One);
    encoder.set_palette([[0; 3], colour].concat());
    // The first of the two is transparent.
    encoder.set_trns(&[0][..]);
    encoder.set_compression(Compression::High);
    encoder.set_filter(Filter::NoFilter);
    let mut pixels = Vec::new();
    for row in (1..=rows).rev() {
        pixels.extend(heights.chunks(8).map(|eight| {
            let set = eight.iter().zip([0x80, 0x40, 0x20, 0x10, 8, 4, 2, 1]);
            set.fold(0, |byte, (height, bit)| {
                byte | if *height >= row { bit } else { 0 }
            })
        }));
    }
    encoder.write_header()?.write_image_data(&pixels)?;
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
    fn columns_stand_on_the_lower_edge_in_their_colour() {
        let heights = [0, 1, 2, 3, 0, 0, 0, 0, 0, 2];
        let bytes = columns(&heights, 3, [1, 2, 3]).unwrap();
        let read = image::load_from_memory(&bytes).unwrap().to_rgba8();
        assert_eq!(read.dimensions(), (10, 3));
        for (x, height) in heights.iter().enumerate() {
            for y in 0..3 {
                let set = u32::from(*height) >= 3 - y;
                let expected = if set { [1, 2, 3, 255] } else { [0; 4] };
                assert_eq!(read.get_pixel(x as u32, y).0, expected, "{x} {y}");
            }
        }
        assert!(columns(&[], 3, [1, 2, 3]).is_err());
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
