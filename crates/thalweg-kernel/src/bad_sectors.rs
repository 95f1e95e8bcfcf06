//! Reading where a device cannot read every sector.
//!
//! Invariants: a power cut may leave sectors of an interrupted write unreadable (`EIO`) until they are written again. Bytes
//! of such a sector read as zeros, which no frame begins with and which fail every checksum but that of zeros; so they say
//! no more than bytes that fail their checksum, and what that means is judged where it is judged for those. Only `EIO` is
//! met so, only if the sector fails twice, and only while other sectors of the file can be read; any other failure says
//! nothing of what is there and is an error.
//!
//! Rejected: to pass every `EIO` on. The database would not open after such a power cut, though nothing that was
//! acknowledged is lost. A disk that fails altogether still is an error: recovery ends with writes and syncs, and switches
//! the root after them.

use std::io::{Error, ErrorKind, Result};
use thalweg_env::File;

/// `EIO`; `std::io::ErrorKind` has no name for it.
const UNREADABLE: i32 = 5;
/// What a device reads at once, at the least.
const SECTOR_BYTES: u64 = 512;

/// Whether the device could not read what lies there.
pub(crate) fn is_unreadable(error: &Error) -> bool {
    error.raw_os_error() == Some(UNREADABLE)
}

/// Fills `buf` as far as the file goes, with zeros in the place of sectors that cannot be read.
pub(crate) fn read_around(file: &dyn File, buf: &mut [u8], offset: u64) -> Result<usize> {
    match read_up_to(file, buf, offset) {
        Err(e) if is_unreadable(&e) => {}
        read => return read,
    }
    let len_bytes = file.len_bytes()?;
    let ends = [0, len_bytes.saturating_sub(1) / SECTOR_BYTES * SECTOR_BYTES];
    let mut probe = [0; 1];
    if let [Err(e), Err(_)] = ends.map(|end| read_up_to(file, &mut probe, end)) {
        return Err(e);
    }
    let mut done = 0;
    while done < buf.len() && offset + (done as u64) < len_bytes {
        let at = offset + done as u64;
        let next_sector = (at / SECTOR_BYTES + 1) * SECTOR_BYTES;
        let left = usize::try_from(next_sector.min(len_bytes) - at).unwrap_or(usize::MAX);
        let end = buf.len().min(done.saturating_add(left));
        match read_up_to(file, &mut buf[done..end], at) {
            Ok(_) => {}
            Err(e) if is_unreadable(&e) => buf[done..end].fill(0),
            Err(e) => return Err(e),
        }
        done = end;
    }
    Ok(done)
}

/// Fills `buf` as far as the file goes. A read that ends before the file does is an error: it must not pass for the end.
pub(crate) fn read_up_to(file: &dyn File, buf: &mut [u8], offset: u64) -> Result<usize> {
    let mut done = 0;
    while done < buf.len() {
        match file.read_at(&mut buf[done..], offset + done as u64) {
            Ok(0) if file.len_bytes()? > offset + done as u64 => {
                return Err(Error::other("a read returned nothing"));
            }
            Ok(0) => break,
            Ok(n) => done += n,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use std::sync::Arc;
    use thalweg_env::OpenMode;
    use thalweg_env::sim::{
        CallKind, CrashChoice, Errno, Fault, FaultPlan, FaultRule, ItemFate, Kept, SimEnv,
    };

    /// A file of ten sectors and a half, of which these cannot be read.
    fn with_bad(sectors: Kept) -> (SimEnv, Arc<dyn File>) {
        let sim = SimEnv::new(1);
        let path = Path::new("/f");
        sim.write_file(path, &[]).unwrap();
        let file = sim.env().storage().open(path, OpenMode::ReadWrite).unwrap();
        file.write_all_at(&[b'x'; 5376], 0).unwrap();
        let fate = ItemFate::Unreadable {
            unit_bytes: SECTOR_BYTES,
            kept: Kept::AllBut(u64::MAX),
            unreadable: sectors,
        };
        let image = sim.crash_image(&CrashChoice::Items(vec![fate]));
        let file = image.env().storage().open(path, OpenMode::Read).unwrap();
        (image, file)
    }

    #[test]
    fn bad_sectors_are_zeros_and_the_rest_is_there() {
        let (_image, file) = with_bad(Kept::Bits(0b100_0000_1010));
        for offset in [0, 1, 511, 512, 513, 700, 1024, 5000, 5375, 5376, 6000] {
            for len in [1, 511, 512, 1024, 8000] {
                let mut buf = vec![b'?'; len];
                let count = read_around(&*file, &mut buf, offset).unwrap();
                let end = 5376_u64.min(offset + len as u64);
                assert_eq!(count as u64, end.saturating_sub(offset));
                for (at, byte) in (offset..end).zip(&buf) {
                    let is_bad = [1, 3, 10].contains(&(at / SECTOR_BYTES));
                    assert_eq!(*byte, if is_bad { 0 } else { b'x' }, "{at}");
                }
            }
        }
    }

    #[test]
    fn a_file_that_cannot_be_read_at_all_is_an_error() {
        let (_image, file) = with_bad(Kept::First(u64::MAX));
        let error = read_around(&*file, &mut [0; 512], 0).unwrap_err();
        assert!(is_unreadable(&error));
    }

    #[test]
    fn other_errors_are_passed_on_and_one_failure_is_tried_again() {
        let (image, file) = with_bad(Kept::First(0));
        let fails = |errno| FaultRule::new(Fault::Error(errno)).on(&[CallKind::Read]);
        image.set_plan(FaultPlan::none().rule(fails(Errno::ACCESS)));
        assert!(read_around(&*file, &mut [0; 512], 0).is_err());
        image.set_plan(FaultPlan::none().rule(fails(Errno::IO).once()));
        let mut buf = [0; 1024];
        assert_eq!(read_around(&*file, &mut buf, 512).unwrap(), 1024);
        assert_eq!(buf, [b'x'; 1024]);
    }
}
