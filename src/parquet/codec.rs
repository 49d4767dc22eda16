//! Page bodies compressed and decompressed, within a size that is known before.

use std::io::{Cursor, Read, Write};
use std::sync::{Mutex, PoisonError};

use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use parquet::basic::Compression;

use super::fault::Fault;
use super::rooms;

/// Whether pages of this codec can be read and written. The framed LZ4 that
/// engines read differently is not among them.
pub fn supported(codec: Compression) -> bool {
    !matches!(codec, Compression::LZO | Compression::LZ4)
}

/// Whether two codecs give pages that one reader reads: levels do not matter.
pub fn same(a: Compression, b: Compression) -> bool {
    std::mem::discriminant(&a) == std::mem::discriminant(&b)
}

/// Tables of the codecs' libraries that nobody uses: making them costs as much as
/// a page.
struct Shelf<T>(Mutex<Vec<T>>);

/// A header may claim any size: more is taken only while it is filled.
const MOST_AT_FIRST: usize = 4 << 20;
/// Tables kept of a kind.
const MOST_KEPT: usize = 8;
/// Tables of this level of compression and below are small.
const SMALL_LEVEL: i32 = 3;

static INFLATING: Shelf<zstd::bulk::Decompressor<'static>> = Shelf(Mutex::new(Vec::new()));
static DEFLATING: Shelf<(i32, zstd::bulk::Compressor<'static>)> = Shelf(Mutex::new(Vec::new()));

impl<T> Shelf<T> {
    fn take(&self, fits: impl Fn(&T) -> bool) -> Option<T> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().rposition(fits).map(|place| kept.remove(place))
    }

    fn give(&self, one: T) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() < MOST_KEPT {
            kept.push(one);
        }
    }
}

/// Decompresses bodies, keeping its tables from one to the next.
#[derive(Default)]
pub struct Inflater {
    /// Memory for the next page.
    pub room: Vec<u8>,
    zstd: Option<zstd::bulk::Decompressor<'static>>,
    snappy: snap::raw::Decoder,
}

impl Inflater {
    /// Room for a page of so many bytes, empty.
    pub fn room(&mut self, bytes: usize) -> Vec<u8> {
        let mut room = std::mem::take(&mut self.room);
        if room.capacity() < bytes.min(rooms::PAGE) {
            rooms::give(std::mem::replace(&mut room, rooms::take(bytes.clamp(rooms::PAGE, MOST_AT_FIRST))));
        }
        room.clear();
        room
    }

    /// Appends the `size` bytes that `from` holds compressed.
    ///
    /// Errs `Damaged` when it holds more, fewer, or does not decompress.
    pub fn inflate(&mut self, codec: Compression, from: &[u8], size: usize, out: &mut Vec<u8>) -> Result<(), Fault> {
        let start = out.len();
        if size == 0 {
            return Ok(());
        }
        match codec {
            Compression::UNCOMPRESSED => out.extend_from_slice(from),
            // writes behind what is there, into memory that was not cleared before
            Compression::ZSTD(_) => {
                out.reserve(size);
                self.zstd()?.decompress_to_buffer(from, &mut behind(out)).map_err(|e| broken(&e))?;
            }
            _ => {
                out.resize(start.saturating_add(size), 0);
                let place = out.get_mut(start..).unwrap_or_default();
                let found = self.fill(codec, from, place)?;
                out.truncate(start.saturating_add(found));
            }
        }
        if out.len() - start == size { Ok(()) } else { Err(Fault::damaged("a page does not have the size that its header states")) }
    }

    fn zstd(&mut self) -> Result<&mut zstd::bulk::Decompressor<'static>, Fault> {
        match &mut self.zstd {
            Some(zstd) => Ok(zstd),
            none => {
                let kept = INFLATING.take(|_| true).map_or_else(zstd::bulk::Decompressor::new, Ok);
                Ok(none.insert(kept.map_err(|e| broken(&e))?))
            }
        }
    }

    fn fill(&mut self, codec: Compression, from: &[u8], place: &mut [u8]) -> Result<usize, Fault> {
        match codec {
            Compression::SNAPPY => self.snappy.decompress(from, place).map_err(|e| broken(&e)),
            Compression::LZ4_RAW => lz4_flex::block::decompress_into(from, place).map_err(|e| broken(&e)),
            Compression::GZIP(_) => fill_from(MultiGzDecoder::new(from), place).map_err(|e| broken(&e)),
            Compression::BROTLI(_) => fill_from(brotli::Decompressor::new(from, 4096), place).map_err(|e| broken(&e)),
            other => Err(Fault::unfit(format_args!("pages are compressed by {other}"))),
        }
    }
}

impl Drop for Inflater {
    fn drop(&mut self) {
        self.zstd.take().into_iter().for_each(|zstd| INFLATING.give(zstd));
        rooms::give(std::mem::take(&mut self.room));
    }
}

fn broken(error: &dyn std::fmt::Display) -> Fault {
    Fault::damaged(format_args!("a page does not decompress: {error}"))
}

/// The room behind the bytes that are there.
fn behind(out: &mut Vec<u8>) -> Cursor<&mut Vec<u8>> {
    let mut cursor = Cursor::new(out);
    cursor.set_position(cursor.get_ref().len() as u64);
    cursor
}

/// Reads until the place is full or the stream ends; more is an error.
fn fill_from(mut stream: impl Read, place: &mut [u8]) -> std::io::Result<usize> {
    let mut done = 0;
    while let Some(rest) = place.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match stream.read(rest)? {
            0 => return Ok(done),
            read => done += read,
        }
    }
    if stream.read(&mut [0])? == 0 { Ok(done) } else { Err(std::io::Error::other("it is larger than its header states")) }
}

/// Compresses bodies by one codec.
pub struct Deflater {
    /// Memory for the next page.
    pub room: Vec<u8>,
    /// Memory for what is compressed together.
    pub whole: Vec<u8>,
    codec: Compression,
    zstd: Option<zstd::bulk::Compressor<'static>>,
    snappy: snap::raw::Encoder,
}

impl Deflater {
    /// Errs `Unfit` on a codec that is not [`supported`].
    pub fn new(codec: Compression) -> Result<Self, Fault> {
        if !supported(codec) {
            return Err(Fault::unfit(format_args!("pages cannot be compressed by {codec}")));
        }
        let zstd = match codec {
            Compression::ZSTD(level) => {
                let level = level.compression_level();
                let kept = DEFLATING.take(|(kept, _)| *kept == level).map(|(_, zstd)| Ok(zstd));
                Some(kept.unwrap_or_else(|| zstd::bulk::Compressor::new(level)).map_err(|e| failed(&e))?)
            }
            _ => None,
        };
        let (room, whole) = (rooms::take(rooms::PAGE), rooms::take(rooms::PAGE));
        Ok(Self { room, whole, codec, zstd, snappy: snap::raw::Encoder::new() })
    }

    /// Its codec.
    pub fn codec(&self) -> Compression {
        self.codec
    }

    /// Appends `from` compressed.
    ///
    /// Errs `Unfit` when the codec's library fails.
    pub fn deflate(&mut self, from: &[u8], out: &mut Vec<u8>) -> Result<(), Fault> {
        match (self.codec, &mut self.zstd) {
            (Compression::UNCOMPRESSED, _) => out.extend_from_slice(from),
            (Compression::ZSTD(_), Some(zstd)) => {
                out.reserve(zstd::zstd_safe::compress_bound(from.len()));
                zstd.compress_to_buffer(from, &mut behind(out)).map_err(|e| failed(&e))?;
            }
            (Compression::SNAPPY, _) => {
                append(out, snap::raw::max_compress_len(from.len()), |place| self.snappy.compress(from, place).map_err(|e| failed(&e)))?;
            }
            (Compression::LZ4_RAW, _) => {
                let most = lz4_flex::block::get_maximum_output_size(from.len());
                append(out, most, |place| lz4_flex::block::compress_into(from, place).map_err(|e| failed(&e)))?;
            }
            (Compression::GZIP(level), _) => {
                let mut stream = GzEncoder::new(out, flate2::Compression::new(level.compression_level()));
                stream.write_all(from).and_then(|()| stream.finish().map(drop)).map_err(|e| failed(&e))?;
            }
            (Compression::BROTLI(level), _) => {
                let mut stream = brotli::CompressorWriter::new(out, 32 << 10, level.compression_level(), 22);
                stream.write_all(from).and_then(|()| stream.flush()).map_err(|e| failed(&e))?;
            }
            (other, _) => return Err(Fault::unfit(format_args!("pages cannot be compressed by {other}"))),
        }
        Ok(())
    }
}

impl Drop for Deflater {
    fn drop(&mut self) {
        if let (Compression::ZSTD(level), Some(zstd)) = (self.codec, self.zstd.take())
            && level.compression_level() <= SMALL_LEVEL
        {
            DEFLATING.give((level.compression_level(), zstd));
        }
        rooms::give(std::mem::take(&mut self.room));
        rooms::give(std::mem::take(&mut self.whole));
    }
}

fn append(out: &mut Vec<u8>, most: usize, fill: impl FnOnce(&mut [u8]) -> Result<usize, Fault>) -> Result<(), Fault> {
    let start = out.len();
    out.resize(start.saturating_add(most), 0);
    let done = fill(out.get_mut(start..).unwrap_or_default())?;
    out.truncate(start.saturating_add(done));
    Ok(())
}

fn failed(error: &dyn std::fmt::Display) -> Fault {
    Fault::unfit(format_args!("a page does not compress: {error}"))
}

#[cfg(test)]
mod tests {
    use parquet::basic::{BrotliLevel, GzipLevel, ZstdLevel};
    use proptest::prelude::*;

    use super::*;

    fn codecs() -> Vec<Compression> {
        vec![
            Compression::UNCOMPRESSED,
            Compression::SNAPPY,
            Compression::LZ4_RAW,
            Compression::GZIP(GzipLevel::default()),
            Compression::BROTLI(BrotliLevel::default()),
            Compression::ZSTD(ZstdLevel::default()),
        ]
    }

    fn inflated(codec: Compression, from: &[u8], size: usize) -> Result<Vec<u8>, Fault> {
        let mut out = b"before".to_vec();
        Inflater::default().inflate(codec, from, size, &mut out)?;
        Ok(out.split_off(6))
    }

    proptest! {
        #[test]
        fn every_codec_gives_back_what_it_took(body in prop::collection::vec(0u8..4, 0..3000)) {
            for codec in codecs() {
                let mut packed = b"before".to_vec();
                Deflater::new(codec).unwrap().deflate(&body, &mut packed).unwrap();
                let packed = &packed[6..];
                prop_assert_eq!(&inflated(codec, packed, body.len()).unwrap(), &body, "{}", codec);
                prop_assert!(matches!(inflated(codec, packed, body.len() + 1), Err(Fault::Damaged(_))), "{codec}");
                if body.len() > 1 {
                    prop_assert!(matches!(inflated(codec, packed, body.len() - 1), Err(Fault::Damaged(_))), "{codec}");
                }
            }
        }

        #[test]
        fn noise_is_damaged_or_of_its_size(body in prop::collection::vec(any::<u8>(), 0..200), size in 1usize..400) {
            for codec in codecs() {
                match inflated(codec, &body, size) {
                    Ok(out) => prop_assert_eq!(out.len(), size),
                    Err(fault) => prop_assert!(matches!(fault, Fault::Damaged(_))),
                }
            }
        }
    }

    #[test]
    fn the_framed_lz4_is_left_alone() {
        assert!(!supported(Compression::LZ4) && !supported(Compression::LZO));
        assert!(Deflater::new(Compression::LZ4).is_err());
        assert!(same(Compression::GZIP(GzipLevel::try_new(1).unwrap()), Compression::GZIP(GzipLevel::try_new(9).unwrap())));
        assert!(!same(Compression::LZ4_RAW, Compression::SNAPPY));
    }
}
