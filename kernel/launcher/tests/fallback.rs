//! The program itself, with interpreters that cannot be loaded into its process. They are
//! shell scripts that say how they were called.

#![expect(clippy::unwrap_used, reason = "a test may fail where it stands")]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output};

/// `base` with a "Python" and `env` made from it, the package installed, no libpython.
fn environment(root: &Path) {
    let script = "#!/bin/sh\n\
        [ \"$1\" = -c ] && echo '{\"version\": [3, 11], \"module\": \"'$(dirname \"$0\")/../lib/m.so'\"}' && exit\n\
        echo \"$0 $*, bytecode ${PYTHONDONTWRITEBYTECODE-written}\"\n";
    put(root, "base/bin/python3.11", script);
    fs::set_permissions(
        root.join("base/bin/python3.11"),
        fs::Permissions::from_mode(0o755),
    )
    .unwrap();
    fs::create_dir_all(root.join("env/bin")).unwrap();
    symlink(
        root.join("base/bin/python3.11"),
        root.join("env/bin/python"),
    )
    .unwrap();
    put(
        root,
        "env/pyvenv.cfg",
        &format!("home = {}\n", root.join("base/bin").display()),
    );
    put(
        root,
        "env/lib/python3.11/site-packages/tpu_kernel/_kernel.abi3.so",
        "no library",
    );
    put(root, "connection.json", "{}");
}

fn put(root: &Path, name: &str, text: &str) {
    let file = root.join(name);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(file, text).unwrap();
}

fn start(root: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tpu-kernel"))
        .args([
            "start",
            "-f",
            "connection.json",
            "--python",
            "env/bin/python",
        ])
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .current_dir(root)
        .output()
        .unwrap()
}

fn expected(root: &Path) -> String {
    let python = root.join("env/bin/python");
    format!(
        "{} -m tpu_kernel -f connection.json, bytecode written\n",
        python.display()
    )
}

#[test]
fn without_a_libpython_the_launcher_becomes_the_interpreter() {
    let root = tempfile::tempdir().unwrap();
    environment(root.path());
    let output = start(root.path());
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        expected(root.path())
    );
    assert!(output.status.success());
}

#[test]
fn with_a_libpython_that_does_not_load_too() {
    let root = tempfile::tempdir().unwrap();
    environment(root.path());
    put(
        root.path(),
        "base/lib/libpython3.11.so.1.0",
        "no library either",
    );
    let output = start(root.path());
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        expected(root.path())
    );
}

#[test]
fn without_the_package_one_line_says_how_to_install_it() {
    let root = tempfile::tempdir().unwrap();
    environment(root.path());
    fs::remove_dir_all(root.path().join("env/lib")).unwrap();
    let script = "#!/bin/sh\necho '{\"version\": [3, 11], \"module\": null}'\n";
    put(root.path(), "base/bin/python3.11", script);
    let output = start(root.path());
    let python = root.path().join("env/bin/python");
    let python = python.display();
    assert_eq!(
        String::from_utf8_lossy(&output.stderr),
        format!(
            "tpu-kernel: the package pytorch-tpu-kernel is not installed for `{python}`: run `{python} -m pip install pytorch-tpu-kernel`\n"
        )
    );
    assert_eq!(output.status.code(), Some(1));
}
