//! Opens the files that a replay writes, such as the decisions. A target is standard output, a
//! device, a pipe, or a file. A file is replaced only by a complete file.
//!
//! Data is written to a file without a name, which the system removes when the program ends. If
//! Ctrl-C stops the replay, for example, no file is left behind. After the replay has succeeded,
//! the data is copied to a temporary file in the target's folder, and this file is renamed. If the
//! replay fails, an earlier file with the target's name is unchanged, and an incomplete file never
//! has that name.

use std::ffi::OsString;
use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Seek, Write};
use std::path::{Path, PathBuf};

use super::identity::Identity;
use crate::failure::Failure;
use crate::printable::printable_path;
use crate::replay::input::Input;

/// The files that a replay reads, each with its description for messages.
pub(crate) type ReadFiles<'s> = [(&'static str, &'s [Input])];

/// An open target.
pub(crate) struct Sink {
    out: Box<dyn Write>,
    /// The file to replace once the output is complete. `None` if the output goes to standard
    /// output, a pipe or a device.
    replacement: Option<Replacement>,
    /// Whether a write fails after the reader has closed the pipe. Otherwise, such a write has no
    /// effect.
    pub(crate) needs_reader: bool,
}

/// The content of a new file, which receives the target's name once the output is complete.
struct Replacement {
    /// A file without a name, in the target's folder.
    content: File,
    target: PathBuf,
    /// The permissions of the earlier file, if there is one.
    permissions: Option<Permissions>,
}

impl Sink {
    /// Opens the file that an option names, or standard output for `-`.
    ///
    /// # Errors
    ///
    /// Returns an error if the path cannot be written, or if it leads to one of the `read` files,
    /// even under another name.
    pub(crate) fn open(option: &str, path: &Path, read: &ReadFiles<'_>) -> Result<Self, Failure> {
        if path == Path::new("-") {
            if let Some(stdout) = Identity::of_stdout() {
                refuse_read(option, "standard output", &stdout, read)?;
            }
            return Ok(Self::new(Box::new(io::stdout()), None));
        }
        let name = printable_path(path);
        let unwritable = |error: io::Error| Failure::writing(&name, &error);
        match fs::metadata(path) {
            Ok(target) if target.is_file() => {
                if let Some(identity) = Identity::of_path(path) {
                    refuse_read(option, &name, &identity, read)?;
                    if Identity::of_stdout().is_some_and(|stdout| stdout == identity) {
                        return Err(Failure::refused(format!(
                            "{option} {name} is where standard output goes, and the report with it; \
                             '-' writes there in place of the report"
                        )));
                    }
                }
                // If the path is a link, the linked file is replaced and the link is kept.
                let path = fs::canonicalize(path).map_err(unwritable)?;
                Self::beside(path, Some(&target)).map_err(unwritable)
            }
            Ok(_) => {
                let file = OpenOptions::new().write(true).open(path).map_err(unwritable)?;
                Ok(Self::new(Box::new(file), None))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Self::beside(path.to_owned(), None).map_err(unwritable)
            }
            Err(error) => Err(unwritable(error)),
        }
    }

    fn new(out: Box<dyn Write>, replacement: Option<Replacement>) -> Self {
        Self { out, replacement, needs_reader: true }
    }

    /// Creates a file in the target's folder. The file receives the permissions of the `earlier`
    /// file or, if there is none, the default permissions.
    fn beside(target: PathBuf, earlier: Option<&Metadata>) -> io::Result<Self> {
        if target.file_name().is_none() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the path has no file name"));
        }
        if earlier.is_some_and(|earlier| earlier.permissions().readonly()) {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it may not be written"));
        }
        let content = tempfile::tempfile_in(folder(&target))?;
        let out = Box::new(content.try_clone()?);
        let permissions = earlier.map(Metadata::permissions);
        Ok(Self::new(out, Some(Replacement { content, target, permissions })))
    }

    /// Writes an output that consists of this text, and finishes it.
    ///
    /// # Errors
    ///
    /// Returns an error if the output cannot be written. `path` is the path with which the output
    /// was opened.
    pub(crate) fn write_whole(mut self, path: &Path, text: &str) -> Result<(), Failure> {
        let written = self.write_all(text.as_bytes()).and_then(|()| self.finish());
        written.map_err(|error| failure(path, &error))
    }

    /// Finishes the output. A file receives its final name.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.flush()?;
        self.replacement.map_or(Ok(()), Replacement::keep)
    }

    /// Returns the result of a write. If the write failed because the reader has closed the pipe,
    /// and the output needs no reader, returns `done`.
    fn unread<T>(&self, written: io::Result<T>, done: T) -> io::Result<T> {
        match written {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe && !self.needs_reader => Ok(done),
            written => written,
        }
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes);
        self.unread(written, bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let flushed = self.out.flush();
        self.unread(flushed, ())
    }
}

/// Returns the failure for an unsuccessful write to an output with this path.
pub(crate) fn failure(path: &Path, error: &io::Error) -> Failure {
    match path == Path::new("-") {
        true => Failure::writing_stdout(error),
        false => Failure::writing(printable_path(path), error),
    }
}

impl Replacement {
    fn keep(mut self) -> io::Result<()> {
        let mut hidden = OsString::from(".");
        hidden.push(self.target.file_name().unwrap_or_default());
        hidden.push(".");
        let mut builder = tempfile::Builder::new();
        builder.prefix(&hidden).suffix(".tmp");
        #[cfg(unix)]
        {
            // The usual permissions of a new file. The system clears the bits that are set in the
            // umask.
            let as_any = std::os::unix::fs::PermissionsExt::from_mode(0o666);
            builder.permissions(as_any);
        }
        let mut named = builder.tempfile_in(folder(&self.target))?;
        self.content.rewind()?;
        io::copy(&mut self.content, named.as_file_mut())?;
        if let Some(permissions) = self.permissions {
            named.as_file().set_permissions(permissions)?;
        }
        named.persist(self.target)?;
        Ok(())
    }
}

/// Returns the folder of a file.
fn folder(target: &Path) -> &Path {
    target.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."))
}

/// Returns whether two paths lead to the same file, or would create the same file.
#[cfg(feature = "html")]
pub(crate) fn are_same(one: &Path, other: &Path) -> bool {
    let place = |path: &Path| Some((fs::canonicalize(folder(path)).ok()?, path.file_name()?.to_owned()));
    match [one, other].map(Identity::of_path) {
        [None, None] => place(one).is_some_and(|place_of_one| Some(place_of_one) == place(other)),
        [one, other] => one == other,
    }
}

/// Refuses a target that is also one of the `read` files.
fn refuse_read(option: &str, name: &str, target: &Identity, read: &ReadFiles<'_>) -> Result<(), Failure> {
    let same = |input: &&Input| match input {
        Input::Stdin => Identity::of_stdin().is_some_and(|stdin| stdin == *target),
        Input::File(path) => Identity::of_path(path).is_some_and(|file| file == *target),
    };
    let found = read.iter().find_map(|(what, inputs)| Some((what, inputs.iter().find(same)?)));
    match found {
        None => Ok(()),
        Some((what, input)) => Err(Failure::refused(format!(
            "{option} would overwrite {name}, {what} ({input}); write to another file"
        ))),
    }
}
