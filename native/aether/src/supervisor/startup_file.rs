//! Variables by which the platform's own bash would run a file of the sandbox before what was asked for.
//!
//! BASH_ENV names such a file. It is given under another name, and the shell gives it its own again for its children before
//! the text begins. ENV is read by interactive shells in POSIX mode alone, which the platform starts none of.

const SET_ASIDE: &[u8] = b"__DSEC_BASH_ENV=";

/// Stands before shell text where `set_aside` said true; on the text's first line, so that line numbers stay.
pub const GIVE_BACK: &str =
    "\\builtin export BASH_ENV=\"$__DSEC_BASH_ENV\"; \\builtin unset __DSEC_BASH_ENV; ";

/// `env` is "NAME=value" of each variable. True: BASH_ENV was among them.
pub fn set_aside(env: &mut [Vec<u8>]) -> bool {
    let mut found = false;
    for variable in env {
        if let Some(value) = variable.strip_prefix(b"BASH_ENV=") {
            *variable = [SET_ASIDE, value].concat();
            found = true;
        } else if let Some(options) = variable.strip_prefix(b"BASHOPTS=") {
            // With it bash runs the debugger's start file. The variable is read-only, so this one is not given back.
            let kept: Vec<&[u8]> = options
                .split(|&b| b == b':')
                .filter(|option| *option != b"extdebug")
                .collect();
            *variable = [b"BASHOPTS=", &kept.join(&b':')[..]].concat();
        }
    }
    found
}
