//! Atomic replacement of files.

use std::fs::{self, File, Metadata, OpenOptions, TryLockError};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Writes a file atomically: at any time `path` has the old or the new contents. A symbolic link stays, and its target is
/// replaced. On Unix the new file has the old one's mode and, where the system allows it, owner and group.
pub(crate) fn replace(path: &Path, write: impl FnOnce(&mut BufWriter<&File>) -> io::Result<()>) -> io::Result<()> {
    let target = follow_links(path)?;
    if target.file_name().is_none() {
        return Err(io::Error::new(ErrorKind::InvalidInput, "path has no file name"));
    }
    let old = match fs::metadata(&target) {
        Ok(old) if old.is_file() => Some(old),
        // A device or a pipe must not be replaced by a file.
        Ok(_) => return Err(io::Error::new(ErrorKind::InvalidInput, "not a regular file")),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    let temporary = Temporary::in_folder_of(&target, old.as_ref())?;
    let mut buffered = BufWriter::with_capacity(1 << 20, &temporary.file);
    write(&mut buffered)?;
    buffered.flush()?;
    drop(buffered);
    if let Some(old) = &old {
        adopt(&temporary.file, old)?;
    }
    // Before renaming, which could otherwise reach the disk first.
    temporary.file.sync_all()?;
    temporary.rename(&target)?;
    let folder = folder_of(&target);
    if is_due(folder) {
        // The file is saved: failures to remove leftovers are ignored.
        let _ = remove_leftovers(folder);
    }
    sync_folder(folder)
}

/// Whether a folder was not searched for a minute: it may have many files, and many may be saved.
fn is_due(folder: &Path) -> bool {
    const OFTEN: Duration = Duration::from_secs(60);
    const MOST: usize = 64;
    static SEEN: Mutex<Vec<(PathBuf, Instant)>> = Mutex::new(Vec::new());
    let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    seen.retain(|(_, time)| time.elapsed() < OFTEN);
    if seen.iter().any(|(known, _)| known == folder) {
        return false;
    }
    if seen.len() == MOST {
        seen.remove(0);
    }
    seen.push((folder.to_path_buf(), Instant::now()));
    true
}

/// The file that a path leads to, which need not exist yet.
fn follow_links(path: &Path) -> io::Result<PathBuf> {
    // The limit of Linux.
    const MOST: usize = 40;
    let mut path = path.to_path_buf();
    for _ in 0..MOST {
        match fs::read_link(&path) {
            // Relative to the folder of the link; an absolute path replaces it.
            Ok(to) => path = folder_of(&path).join(to),
            // Not a link. Other errors appear when the path is used.
            Err(_) => return Ok(path),
        }
    }
    Err(io::Error::new(ErrorKind::InvalidInput, "symbolic links form a cycle"))
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A file that is removed on drop, unless it was renamed.
struct Temporary {
    file: File,
    path: Option<PathBuf>,
}

impl Temporary {
    /// A new file in the same folder, so that renaming does not copy.
    fn in_folder_of(target: &Path, old: Option<&Metadata>) -> io::Result<Temporary> {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        restrict(&mut options, old);
        let mut taken = ErrorKind::AlreadyExists.into();
        for _ in 0..100 {
            // Random, since processes in containers may have the same id. Not derived from the target's name, which may have
            // the greatest length.
            let random = RandomState::new().build_hasher().finish();
            let name = format!(".cotangent-{:016x}-{}-{random:016x}.tmp", running_system(), std::process::id());
            let path = folder_of(target).join(name);
            match options.open(&path) {
                Ok(file) => {
                    // The lock is held until the file is closed: files without one are leftovers. Another process may have
                    // removed the file before it was locked. Not every file system has locks.
                    let taken = matches!(file.try_lock(), Err(TryLockError::WouldBlock));
                    if taken || !path.exists() {
                        continue;
                    }
                    return Ok(Temporary { file, path: Some(path) });
                }
                Err(error) if error.kind() == ErrorKind::AlreadyExists => taken = error,
                Err(error) => return Err(error),
            }
        }
        Err(taken)
    }

    fn rename(mut self, target: &Path) -> io::Result<()> {
        if let Some(path) = &self.path {
            fs::rename(path, target)?;
        }
        self.path = None;
        Ok(())
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            // The failure that leads here is reported instead.
            let _ = fs::remove_file(path);
        }
    }
}

/// A number of this boot of the system, in practice unique among machines; 0 if unknown.
fn running_system() -> u64 {
    static NUMBER: OnceLock<u64> = OnceLock::new();
    *NUMBER.get_or_init(|| {
        let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        // FNV-1a, the same in all processes.
        let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        if id.is_empty() { 0 } else { id.trim().bytes().fold(0xcbf2_9ce4_8422_2325, mix) }
    })
}

/// For a name of [`Temporary::in_folder_of`], whether its process is known to be gone. A process with the id of this one is another,
/// gone one: the first process of every container has the same id.
fn writer_is_gone(name: &str) -> Option<bool> {
    let is_hex = |digits: &str| digits.len() == 16 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    let mut parts = name.strip_prefix(".cotangent-")?.strip_suffix(".tmp")?.split('-');
    match (parts.next(), parts.next(), parts.next(), parts.next()) {
        // The form of earlier versions.
        (Some(random), None, ..) if is_hex(random) => Some(false),
        (Some(system), Some(process), Some(random), None) if is_hex(system) && is_hex(random) => {
            let (system, process) = (u64::from_str_radix(system, 16).ok()?, process.parse::<u32>().ok()?);
            let here = system != 0 && system == running_system();
            Some(here && (process == std::process::id() || !Path::new(&format!("/proc/{process}")).exists()))
        }
        _ => None,
    }
}

/// Removes temporary files of processes that were killed while writing: they are not locked, and their process is gone or,
/// if that is unknown, they are at least an hour old.
pub(super) fn remove_leftovers(folder: &Path) -> io::Result<()> {
    const OLD: Duration = Duration::from_secs(3600);
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let Some(gone) = name.to_str().and_then(writer_is_gone) else { continue };
        let age = || entry.metadata().and_then(|file| file.modified()).ok().and_then(|time| time.elapsed().ok());
        if !gone && age().is_none_or(|age| age <= OLD) {
            continue;
        }
        // Opening a pipe of this name would block.
        if !entry.file_type().is_ok_and(|kind| kind.is_file()) {
            continue;
        }
        // The lock is held until the file is gone, so that a process that has just created it sees one of the two.
        if let Ok(file) = File::open(entry.path())
            && file.try_lock().is_ok()
        {
            // Another process may have removed it.
            let _ = fs::remove_file(entry.path());
        }
    }
    Ok(())
}

/// Creates the new file with access for its owner only, if there is an old one whose mode is adopted later.
#[cfg(unix)]
fn restrict(options: &mut OpenOptions, old: Option<&Metadata>) {
    use std::os::unix::fs::OpenOptionsExt;
    if old.is_some() {
        options.mode(0o600);
    }
}

/// Gives the new file the mode, and where the system allows it the owner and group, of the old one.
#[cfg(unix)]
fn adopt(file: &File, old: &Metadata) -> io::Result<()> {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
    let mut mode = old.mode() & 0o777;
    let new = file.metadata()?;
    if (new.uid(), new.gid()) != (old.uid(), old.gid()) && fchown(file, Some(old.uid()), Some(old.gid())).is_err() {
        // Only root may change the owner, but the owner may change the group to another one of theirs. If the group differs,
        // the permissions of the old group do not apply.
        if new.gid() != old.gid() && fchown(file, None, Some(old.gid())).is_err() {
            mode &= 0o707;
        }
    }
    file.set_permissions(fs::Permissions::from_mode(mode))
}

/// Syncs the renaming to the disk.
#[cfg(unix)]
fn sync_folder(folder: &Path) -> io::Result<()> {
    match File::open(folder).and_then(|folder| folder.sync_all()) {
        // A folder without read permission, or a file system without this request. The file was replaced, and nothing more
        // can be done.
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::PermissionDenied | ErrorKind::InvalidInput | ErrorKind::Unsupported
            ) =>
        {
            Ok(())
        }
        result => result,
    }
}

#[cfg(not(unix))]
fn restrict(_: &mut OpenOptions, _: Option<&Metadata>) {}

#[cfg(not(unix))]
fn adopt(_: &File, _: &Metadata) -> io::Result<()> {
    Ok(())
}

#[cfg(not(unix))]
fn sync_folder(_: &Path) -> io::Result<()> {
    Ok(())
}

#[cotangent_macros::unit_tests]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn a_panic_leaves_the_old_file_and_nothing_else() -> io::Result<()> {
        let folder = std::env::temp_dir().join(format!("cotangent-replace-{}", std::process::id()));
        fs::create_dir_all(&folder)?;
        let path = folder.join("values");
        fs::write(&path, "old")?;
        let written = catch_unwind(AssertUnwindSafe(|| {
            replace(&path, |file| {
                file.write_all(b"new")?;
                file.flush()?;
                std::panic::resume_unwind(Box::new("within"))
            })
        }));
        assert!(written.is_err());
        assert_eq!(fs::read_to_string(&path)?, "old");
        assert_eq!(fs::read_dir(&folder)?.count(), 1);
        fs::remove_dir_all(folder)
    }
}
