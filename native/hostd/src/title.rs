//! The command line that a process shows in /proc/PID/cmdline, where forks of hostd would show hostd's, paths included.

use crate::sys;

/// Shows `name` alone, and an empty environment. Overwrites the memory of both: what std::env gives after it means nothing.
pub fn set(name: &str) -> std::io::Result<()> {
    let stat = sys::read_at(libc::AT_FDCWD, "/proc/self/stat")?;
    let (arguments, environment) = areas(&stat).ok_or(std::io::ErrorKind::InvalidData)?;
    // SAFETY: both areas lie on this process's own stack, above all frames; nothing here holds a reference into them.
    unsafe {
        std::slice::from_raw_parts_mut(environment.0 as *mut u8, environment.1).fill(0);
        let shown = std::slice::from_raw_parts_mut(arguments.0 as *mut u8, arguments.1);
        let Some((last, before)) = shown.split_last_mut() else {
            return Ok(());
        };
        before.fill(0);
        let length = name.len().min(before.len().saturating_sub(1));
        before[..length].copy_from_slice(&name.as_bytes()[..length]);
        // An area that ends in no NUL is a title for the kernel (fs/proc/base.c), which then shows it up to its first NUL.
        *last = 1;
    }
    let name = sys::cstr(name)?;
    // SAFETY: the string outlives the call; the kernel takes its first 15 bytes.
    sys::check(i64::from(unsafe {
        libc::prctl(libc::PR_SET_NAME, name.as_ptr(), 0, 0, 0)
    }))
    .map(drop)
}

/// Start and length of the arguments and of the environment: fields 48 to 51 of /proc/PID/stat.
fn areas(stat: &str) -> Option<((usize, usize), (usize, usize))> {
    // The name, field 2, may hold anything; after its last bracket comes field 3.
    let mut fields = stat.rsplit(')').next()?.split_whitespace().skip(45);
    let mut next = || fields.next()?.parse::<usize>().ok().filter(|at| *at > 0);
    let (from, to, env_from, env_to) = (next()?, next()?, next()?, next()?);
    Some((
        (from, to.checked_sub(from)?),
        (env_from, env_to.checked_sub(env_from)?),
    ))
}
