//! The command line: what `tpu-kernel` understands, as values.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use lexopt::{Arg, Parser, ValueExt};

use crate::error::Error;

pub const HELP: &str = "\
tpu-kernel: the Jupyter kernel PyTorch (TPU)

  tpu-kernel start -f CONNECTION [--python PYTHON] [--CLASS.TRAIT=VALUE ...]
      Run a kernel for the connection file that a Jupyter front end wrote. Settings of
      IPython are passed on, such as --InteractiveShellApp.exec_lines='import torch'.
  tpu-kernel install [--user | --sys-prefix | --prefix FOLDER] [--name NAME]
                     [--display-name TEXT] [--python PYTHON] [--env NAME=VALUE ...]
      Write a kernelspec, so that a Jupyter installed elsewhere offers this kernel.
      Without a place: --user. Installing over an earlier kernelspec replaces it.
      --env sets a variable for its kernels, such as TPU_KERNEL_EMULATE=v6e.
  tpu-kernel top [--once] [--json] [--interval SECONDS]
      Show every kernel of yours on this machine: chip, notebook, HBM, how busy, since when
      idle. Once where the output is no terminal, else every two seconds.
  tpu-kernel --version
  tpu-kernel --help

  PYTHON is the interpreter of the environment that has the package
  pytorch-tpu-kernel; without it, the one beside this program is taken.";

/// The kernelspec folder, and with it the kernel's name, unless `--name` says otherwise.
pub const DEFAULT_NAME: &str = "pytorch-tpu";

#[derive(Debug, PartialEq)]
pub enum Command {
    Help,
    Version,
    Start(StartOptions),
    Install(InstallOptions),
    Top(TopOptions),
    /// What tpu-core starts to compile a program that could end its process.
    Compile,
}

#[derive(Debug, PartialEq)]
pub struct StartOptions {
    pub connection_file: PathBuf,
    pub python: Option<PathBuf>,
    /// Settings for IPython, each as one word `--CLASS.TRAIT=VALUE`.
    pub settings: Vec<OsString>,
}

#[derive(Debug, PartialEq)]
pub struct InstallOptions {
    pub place: Place,
    pub name: String,
    /// `None` keeps the display name of the kernelspec.
    pub display_name: Option<String>,
    pub python: Option<PathBuf>,
    /// Variables of the kernel's environment, as name and value.
    pub env: Vec<(String, String)>,
}

#[derive(Debug, PartialEq)]
pub struct TopOptions {
    pub once: bool,
    pub json: bool,
    pub interval: Duration,
}

/// Where a kernelspec goes.
#[derive(Debug, PartialEq)]
pub enum Place {
    User,
    /// The environment of the interpreter.
    SysPrefix,
    Prefix(PathBuf),
}

/// `words` is the command line without the program's own name.
pub fn parse(words: impl Iterator<Item = OsString>) -> Result<Command, Error> {
    let mut parser = Parser::from_args(words);
    match parser.next()? {
        None => Err(usage("no command was given")),
        Some(Arg::Long("help") | Arg::Short('h')) => Ok(Command::Help),
        Some(Arg::Long("version") | Arg::Short('V')) => Ok(Command::Version),
        Some(Arg::Value(word)) if word == "help" => Ok(Command::Help),
        Some(Arg::Value(word)) if word == "start" => parse_start(&mut parser),
        Some(Arg::Value(word)) if word == "compile" => Ok(Command::Compile),
        Some(Arg::Value(word)) if word == "install" => parse_install(&mut parser),
        Some(Arg::Value(word)) if word == "top" => parse_top(&mut parser),
        Some(Arg::Value(word)) => Err(usage(format!("there is no command `{}`", word.display()))),
        Some(other) => Err(other.unexpected().into()),
    }
}

fn parse_start(parser: &mut Parser) -> Result<Command, Error> {
    let mut connection_file = None;
    let mut python = None;
    let mut settings = Vec::new();
    while let Some(argument) = parser.next()? {
        match argument {
            Arg::Short('f') | Arg::Long("connection-file") => {
                connection_file = Some(PathBuf::from(parser.value()?));
            }
            Arg::Long("python") => python = Some(PathBuf::from(parser.value()?)),
            Arg::Long("help") | Arg::Short('h') => return Ok(Command::Help),
            Arg::Long(name) if name.contains('.') => {
                let mut word = OsString::from(format!("--{name}="));
                word.push(parser.value()?);
                settings.push(word);
            }
            other => return Err(other.unexpected().into()),
        }
    }
    let connection_file = connection_file.ok_or_else(|| usage("`start` needs -f CONNECTION"))?;
    Ok(Command::Start(StartOptions {
        connection_file,
        python,
        settings,
    }))
}

fn parse_install(parser: &mut Parser) -> Result<Command, Error> {
    let mut options = InstallOptions {
        place: Place::User,
        name: DEFAULT_NAME.to_owned(),
        display_name: None,
        python: None,
        env: Vec::new(),
    };
    let mut placed = false;
    while let Some(argument) = parser.next()? {
        let place = match argument {
            Arg::Long("user") => Place::User,
            Arg::Long("sys-prefix") => Place::SysPrefix,
            Arg::Long("prefix") => Place::Prefix(PathBuf::from(parser.value()?)),
            Arg::Long("name") => {
                options.name = kernel_name(parser.value()?)?;
                continue;
            }
            Arg::Long("display-name") => {
                let text = parser.value()?.string()?;
                options.display_name = Some(text);
                continue;
            }
            Arg::Long("python") => {
                options.python = Some(PathBuf::from(parser.value()?));
                continue;
            }
            Arg::Long("env") => {
                options.env.push(variable(parser.value()?)?);
                continue;
            }
            Arg::Long("help") | Arg::Short('h') => return Ok(Command::Help),
            other => return Err(other.unexpected().into()),
        };
        if placed {
            return Err(usage("give one of --user, --sys-prefix and --prefix"));
        }
        placed = true;
        options.place = place;
    }
    Ok(Command::Install(options))
}

fn parse_top(parser: &mut Parser) -> Result<Command, Error> {
    let mut options = TopOptions {
        once: false,
        json: false,
        interval: Duration::from_secs(2),
    };
    while let Some(argument) = parser.next()? {
        match argument {
            Arg::Long("once") => options.once = true,
            Arg::Long("json") => options.json = true,
            Arg::Long("interval") => options.interval = interval(parser.value()?)?,
            Arg::Long("help") | Arg::Short('h') => return Ok(Command::Help),
            other => return Err(other.unexpected().into()),
        }
    }
    Ok(Command::Top(options))
}

fn interval(word: OsString) -> Result<Duration, Error> {
    let text = word.string()?;
    let seconds: Option<f64> = text.parse().ok();
    seconds
        .filter(|seconds| (0.2..=3600.0).contains(seconds))
        .map(Duration::from_secs_f64)
        .ok_or_else(|| {
            usage(format!(
                "`--interval {text}` is no number of seconds from 0.2 to 3600"
            ))
        })
}

fn variable(word: OsString) -> Result<(String, String), Error> {
    let text = word.string()?;
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err(usage(format!("`--env {text}` is not NAME=VALUE"))),
    }
}

/// Jupyter refuses other names when it lists kernels, without a word to the person.
fn kernel_name(name: OsString) -> Result<String, Error> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    match name.to_str() {
        Some(text)
            if !text.is_empty()
                && text.chars().all(allowed)
                && text.chars().any(char::is_alphanumeric) =>
        {
            Ok(text.to_owned())
        }
        _ => Err(Error::BadName { name }),
    }
}

fn usage(message: impl Into<String>) -> Error {
    Error::Usage {
        message: message.into(),
    }
}

impl From<lexopt::Error> for Error {
    fn from(error: lexopt::Error) -> Self {
        usage(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Result<Command, Error> {
        parse(line.split_whitespace().map(OsString::from))
    }

    fn complaint(line: &str) -> String {
        words(line).expect_err("must be refused").to_string()
    }

    #[test]
    fn settings_of_ipython_are_passed_on_as_one_word_each() {
        let line = "start --IPKernelApp.matplotlib=agg -f k.json --A.b x";
        let Command::Start(options) = words(line).unwrap() else {
            panic!("{line}")
        };
        assert_eq!(
            options.settings,
            ["--IPKernelApp.matplotlib=agg", "--A.b=x"]
        );
    }

    #[test]
    fn start_takes_the_file_that_a_kernelspec_gives() {
        let python = Some(PathBuf::from("/env/bin/python"));
        assert_eq!(
            words("start --python /env/bin/python -f /run/kernel-1.json").unwrap(),
            Command::Start(StartOptions {
                connection_file: "/run/kernel-1.json".into(),
                python,
                settings: Vec::new(),
            })
        );
    }

    #[test]
    fn install_without_options_is_for_the_user() {
        let expected = InstallOptions {
            place: Place::User,
            name: "pytorch-tpu".into(),
            display_name: None,
            python: None,
            env: Vec::new(),
        };
        assert_eq!(words("install").unwrap(), Command::Install(expected));
    }

    #[test]
    fn install_takes_a_place_and_names() {
        let expected = InstallOptions {
            place: Place::Prefix("/opt/lab".into()),
            name: "tpu-2".into(),
            display_name: Some("Two".into()),
            python: None,
            env: vec![("TPU_KERNEL_EMULATE".into(), "v6e".into())],
        };
        assert_eq!(
            words("install --prefix /opt/lab --name tpu-2 --display-name Two --env TPU_KERNEL_EMULATE=v6e")
                .unwrap(),
            Command::Install(expected)
        );
    }

    #[test]
    fn top_is_asked_for_with_its_interval() {
        let expected = TopOptions {
            once: false,
            json: true,
            interval: Duration::from_millis(500),
        };
        assert_eq!(
            words("top --json --interval 0.5").unwrap(),
            Command::Top(expected)
        );
        assert!(
            complaint("top --interval 0").starts_with("`--interval 0` is no number of seconds")
        );
    }

    #[test]
    fn mistakes_are_named_in_one_line() {
        let hint = "; `tpu-kernel --help` lists the commands and their options";
        assert_eq!(complaint(""), format!("no command was given{hint}"));
        assert_eq!(
            complaint("begin"),
            format!("there is no command `begin`{hint}")
        );
        assert_eq!(
            complaint("start"),
            format!("`start` needs -f CONNECTION{hint}")
        );
        assert_eq!(
            complaint("start -f"),
            format!("missing argument for option '-f'{hint}")
        );
        assert_eq!(
            complaint("start -f a --speed 3"),
            format!("invalid option '--speed'{hint}")
        );
        assert_eq!(
            complaint("install --user --sys-prefix"),
            format!("give one of --user, --sys-prefix and --prefix{hint}")
        );
        assert_eq!(
            complaint("install --name a/b"),
            "`a/b` is not a kernel name: use letters, digits, `-`, `_` and `.` only"
        );
        assert_eq!(
            complaint("install --name .."),
            "`..` is not a kernel name: use letters, digits, `-`, `_` and `.` only"
        );
    }
}
