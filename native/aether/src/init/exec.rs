//! Looking a program up as execvp does, with the command's own PATH, and a shell's codes where it cannot run.

use std::ffi::CString;
use std::ptr;

use super::child::{error_text, fail, SHELL};
use crate::sys;

/// C strings and the array of pointers to them that exec wants.
struct Strings {
    _texts: Vec<CString>,
    pointers: Vec<*const libc::c_char>,
}

impl Strings {
    fn new(texts: Vec<Vec<u8>>) -> Strings {
        let texts: Vec<CString> = texts
            .into_iter()
            .filter_map(|text| CString::new(text).ok())
            .collect();
        let pointers = texts
            .iter()
            .map(|text| text.as_ptr())
            .chain([ptr::null()])
            .collect();
        Strings {
            _texts: texts,
            pointers,
        }
    }
}

/// Runs argv with the static bash at descriptor SHELL.
pub fn shell(argv: Vec<Vec<u8>>, env: Vec<Vec<u8>>) -> ! {
    let (argv, env) = (Strings::new(argv), Strings::new(env));
    // SAFETY: both arrays end in null and live through the call.
    unsafe {
        libc::syscall(
            libc::SYS_execveat,
            SHELL,
            c"".as_ptr(),
            argv.pointers.as_ptr(),
            env.pointers.as_ptr(),
            libc::AT_EMPTY_PATH,
        );
    }
    fail(126, b"bash", &error_text(sys::errno()))
}

/// Runs argv[0], found in PATH of `env` where it has no slash.
pub fn program(argv: Vec<Vec<u8>>, env: Vec<Vec<u8>>) -> ! {
    let name = argv[0].clone();
    let path = env
        .iter()
        .find_map(|v| v.strip_prefix(b"PATH="))
        .unwrap_or(b"/usr/bin:/bin")
        .to_vec();
    let (strings, variables) = (Strings::new(argv.clone()), Strings::new(env.clone()));
    let candidates: Vec<Vec<u8>> = if name.contains(&b'/') {
        vec![name.clone()]
    } else {
        path.split(|&b| b == b':')
            .map(|dir| [if dir.is_empty() { b"." } else { dir }, b"/", &name[..]].concat())
            .collect()
    };
    let mut denied = 0;
    for file in candidates {
        let Ok(c_file) = CString::new(file.clone()) else {
            continue;
        };
        // SAFETY: all strings end in NUL and live through the call.
        unsafe {
            libc::execve(
                c_file.as_ptr(),
                strings.pointers.as_ptr(),
                variables.pointers.as_ptr(),
            )
        };
        match sys::errno() {
            libc::ENOENT | libc::ENOTDIR | libc::ENAMETOOLONG | libc::ELOOP
                if !name.contains(&b'/') => {}
            libc::EACCES if !name.contains(&b'/') => denied = libc::EACCES,
            libc::ENOENT | libc::ENOTDIR => {
                // A script whose interpreter is missing is there, and yet ENOENT.
                // SAFETY: the name ends in NUL.
                let there = unsafe { libc::access(c_file.as_ptr(), libc::F_OK) } == 0;
                if there {
                    fail(126, &name, "cannot execute: required file not found");
                }
                fail(127, &name, "No such file or directory");
            }
            libc::ENOEXEC => {
                let (mut argv, mut env) = (argv, env);
                argv.splice(0..1, [b"bash".to_vec(), file]);
                // What sh is elsewhere reads no such file either.
                env.retain(|v| !v.starts_with(b"BASH_ENV=") && !v.starts_with(b"BASHOPTS="));
                shell(argv, env);
            }
            errno => fail(126, &name, &error_text(errno)),
        }
    }
    if denied != 0 {
        fail(126, &name, &error_text(denied));
    }
    fail(127, &name, "command not found")
}
