//! Files that parties keep between sessions: what a folder holds, what is out of date, and how a file comes to be there whole or not at all.

use std::fs::{File, OpenOptions};
use std::io::{Result, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// A file of a folder.
pub(crate) struct Found {
    pub(crate) path: PathBuf,
    pub(crate) bytes: u64,
    /// When it was last used.
    pub(crate) used: SystemTime,
}

/// Bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Whether a text has so many lower-case hexadecimal digits and nothing else.
pub(crate) fn is_hex(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|c| c.is_ascii_digit() || (b'a'..=b'f').contains(&c))
}

/// All files of a folder whose names are this program's.
pub(crate) fn files(folder: &Path, own: impl Fn(&str) -> bool) -> Result<Vec<Found>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        // A file that another session has just removed is none.
        let Ok(data) = entry.metadata() else { continue };
        if data.is_file() && entry.file_name().to_str().is_some_and(&own) {
            found.push(Found { path: entry.path(), bytes: data.len(), used: data.modified()? });
        }
    }
    Ok(found)
}

/// Removes files that nobody has used for `age`; one that somebody has locked is in use. One that cannot be removed is counted as long as it is
/// there.
pub(crate) fn expire(files: &[Found], age: Duration) {
    for file in files {
        let unused = SystemTime::now().duration_since(file.used).unwrap_or_default();
        let free = || File::open(&file.path).is_ok_and(|f| f.try_lock().is_ok());
        if unused > age && free() {
            let _ = std::fs::remove_file(&file.path);
        }
    }
}

/// A new file that nobody but its owner may read.
pub(crate) fn create_private(path: &Path) -> Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Makes a folder, if there is none, that nobody but its owner may look into.
pub(crate) fn create_folder(path: &Path) -> Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

/// As [`create_folder`], of a folder for what is secret: one that everybody may write to is refused. Whoever can put files there could choose the
/// secret, or have another file overwritten through a link.
pub(crate) fn create_secret_folder(path: &Path) -> Result<()> {
    create_folder(path)?;
    #[cfg(unix)]
    if std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(path)?.permissions()) & 0o002 != 0 {
        let why = "everybody may write to this folder, and so put secrets of their own there; `chmod o-w` it, or name a folder in it that is not there yet";
        return Err(std::io::Error::new(std::io::ErrorKind::PermissionDenied, why));
    }
    Ok(())
}

/// Gives a finished file its name, so that after a crash it is there whole or not at all.
pub(crate) fn publish(file: &File, temporary: &Path, path: &Path) -> Result<()> {
    file.sync_all()?;
    std::fs::rename(temporary, path)?;
    // The folder's own record of the name; systems without such a thing need none.
    #[cfg(unix)]
    if let Some(folder) = path.parent() {
        File::open(folder)?.sync_all()?;
    }
    Ok(())
}

/// Writes a small file, whole or not at all.
pub(crate) fn write_private(temporary: &Path, path: &Path, bytes: &[u8]) -> Result<()> {
    let written = create_private(temporary).and_then(|mut file| {
        file.write_all(bytes)?;
        publish(&file, temporary, path)
    });
    if written.is_err() {
        // It may not be there.
        let _ = std::fs::remove_file(temporary);
    }
    written
}
