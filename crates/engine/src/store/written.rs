//! Waiting for a device to have written what it is being given, without making that durable.

use std::fs::File;
use std::io;
#[cfg(target_os = "linux")]
use std::os::fd::AsRawFd;

/// Waits until the device has written those pages of a range of `file` that it is being given.
///
/// # Errors
/// That of a write which failed. The system tells of it once: a sync of the same file may say
/// nothing any more.
#[cfg(target_os = "linux")]
pub(super) fn wait_written(file: &File, offset: u64, length: u64) -> io::Result<()> {
    let number = |n: u64| libc::off64_t::try_from(n).map_err(|_| io::ErrorKind::InvalidInput);
    let (offset, length) = (number(offset)?, number(length)?);
    // To the system no length means up to the end.
    if length == 0 {
        return Ok(());
    }
    let how = libc::SYNC_FILE_RANGE_WAIT_BEFORE;
    loop {
        // SAFETY: the descriptor is open as long as `file` is borrowed, and no memory is passed.
        let result = unsafe { libc::sync_file_range(file.as_raw_fd(), offset, length, how) };
        let error = io::Error::last_os_error();
        match error.kind() {
            _ if result == 0 => return Ok(()),
            io::ErrorKind::Interrupted => {}
            // Not for this file, or in this sandbox: then nobody waits.
            _ if matches!(
                error.raw_os_error(),
                Some(libc::ESPIPE | libc::ENOSYS | libc::EPERM)
            ) =>
            {
                return Ok(());
            }
            _ => return Err(error),
        }
    }
}

/// Does not wait: the system has no such call.
#[cfg(not(target_os = "linux"))]
pub(super) fn wait_written(_: &File, _: u64, _: u64) -> io::Result<()> {
    Ok(())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn ranges_in_a_file_and_beyond_its_end_are_waited_for() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 100_000]).unwrap();
        for (offset, length) in [
            (0, 100_000),
            (4096, 8192),
            (0, 0),
            (1 << 40, 1),
            (1, 1 << 40),
        ] {
            wait_written(&file, offset, length).unwrap();
        }
        let beyond = wait_written(&file, u64::MAX, 1).unwrap_err();
        assert_eq!(beyond.kind(), io::ErrorKind::InvalidInput);
        let beyond = wait_written(&file, i64::MAX as u64, 2).unwrap_err();
        assert_eq!(beyond.kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn what_is_no_file_is_not_waited_for() {
        let null = File::options().write(true).open("/dev/null").unwrap();
        wait_written(&null, 0, 10).unwrap();
    }
}
