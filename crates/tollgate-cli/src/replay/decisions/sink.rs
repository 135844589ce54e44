//! The target of the decisions: standard output, a device or pipe, or a file that is replaced only
//! by a complete one.
//!
//! A file's rows go to a temporary file beside it, which is renamed once the replay has succeeded.
//! So a failure leaves the earlier file as it was, and an incomplete file never has the target's
//! name.

use std::ffi::OsString;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use super::identity::Identity;
use crate::failure::Failure;
use crate::printable::printable_path;
use crate::replay::input::Input;

/// A place to write to.
pub(crate) enum Sink {
    Stdout(io::Stdout),
    /// A pipe or a device, which can't be replaced.
    Stream(File),
    Replacement(Replacement),
}

/// A file under a temporary name, which is removed unless it is kept.
pub(crate) struct Replacement {
    file: NamedTempFile,
    target: PathBuf,
}

impl Sink {
    /// Opens the file that an option names, or standard output for `-`.
    ///
    /// # Errors
    ///
    /// A path that cannot be written, or one that is among the inputs or is the file of `--quotas`,
    /// by whatever name.
    pub(crate) fn open(
        option: &str,
        path: &Path,
        inputs: &[Input],
        key_quotas: Option<&Input>,
    ) -> Result<Self, Failure> {
        if path == Path::new("-") {
            if let Some(stdout) = Identity::of_stdout() {
                refuse_read(option, "standard output", &stdout, inputs, key_quotas)?;
            }
            return Ok(Self::Stdout(io::stdout()));
        }
        let name = printable_path(path);
        let unwritable = |error: io::Error| Failure::writing(&name, &error);
        match fs::metadata(path) {
            Ok(target) if target.is_file() => {
                if let Some(identity) = Identity::of_path(path) {
                    refuse_read(option, &name, &identity, inputs, key_quotas)?;
                    if Identity::of_stdout().is_some_and(|stdout| stdout == identity) {
                        return Err(Failure::refused(format!(
                            "{option} {name} is where standard output goes, and the report with it; \
                             '-' writes there in place of the report"
                        )));
                    }
                }
                // Replaces the file that a link points at, not the link.
                let path = fs::canonicalize(path).map_err(unwritable)?;
                Replacement::beside(path, Some(&target)).map(Self::Replacement).map_err(unwritable)
            }
            Ok(_) => OpenOptions::new().write(true).open(path).map(Self::Stream).map_err(unwritable),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Replacement::beside(path.to_owned(), None).map(Self::Replacement).map_err(unwritable)
            }
            Err(error) => Err(unwritable(error)),
        }
    }

    /// Finishes the output; a file takes its final name.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.flush()?;
        match self {
            Self::Replacement(file) => file.keep(),
            Self::Stdout(_) | Self::Stream(_) => Ok(()),
        }
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Stdout(stdout) => stdout.write(bytes),
            Self::Stream(file) => file.write(bytes),
            Self::Replacement(Replacement { file, .. }) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Stdout(stdout) => stdout.flush(),
            Self::Stream(file) => file.flush(),
            Self::Replacement(Replacement { file, .. }) => file.flush(),
        }
    }
}

impl Replacement {
    /// Creates a file beside the target, with the permissions of the `earlier` file or of a new
    /// one.
    fn beside(target: PathBuf, earlier: Option<&Metadata>) -> io::Result<Self> {
        let Some(name) = target.file_name() else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the path has no file name"));
        };
        let mut hidden = OsString::from(".");
        hidden.push(name);
        hidden.push(".");
        let folder = target.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
        let mut builder = tempfile::Builder::new();
        builder.prefix(&hidden).suffix(".tmp");
        #[cfg(unix)]
        {
            // As any new file; the system takes the bits of the umask away.
            let as_any = std::os::unix::fs::PermissionsExt::from_mode(0o666);
            builder.permissions(as_any);
        }
        let file = builder.tempfile_in(folder)?;
        if let Some(earlier) = earlier {
            if earlier.permissions().readonly() {
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it may not be written"));
            }
            file.as_file().set_permissions(earlier.permissions())?;
        }
        Ok(Self { file, target })
    }

    fn keep(self) -> io::Result<()> {
        self.file.persist(self.target)?;
        Ok(())
    }
}

/// Refuses a target that is also an input.
fn refuse_read(
    option: &str,
    name: &str,
    target: &Identity,
    inputs: &[Input],
    key_quotas: Option<&Input>,
) -> Result<(), Failure> {
    let same = |input: &&Input| match input {
        Input::Stdin => Identity::of_stdin().is_some_and(|stdin| stdin == *target),
        Input::File(path) => Identity::of_path(path).is_some_and(|file| file == *target),
    };
    let log = inputs.iter().find(same).map(|input| (input, "the log it replays"));
    match log.or_else(|| key_quotas.filter(same).map(|input| (input, "the quotas of --quotas"))) {
        None => Ok(()),
        Some((input, what)) => Err(Failure::refused(format!(
            "{option} would overwrite {name}, {what} ({input}); write to another file"
        ))),
    }
}
