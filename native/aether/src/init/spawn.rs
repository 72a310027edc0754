//! Commands, session shells and file workers: everything is looked up before the fork, so that what cannot start is an
//! error and not a result.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use prost::Message;

use super::users::User;
use super::{child, exec, Init};
use crate::link::{news, Order, Report};
use crate::sys;

struct Pty {
    master: OwnedFd,
    slave: OwnedFd,
}

impl Init {
    pub(super) fn spawn(&mut self, order: Order, fds: Vec<OwnedFd>) {
        let token = order.token;
        let user = match self.users.resolve(&order.user) {
            Ok(user) => user,
            Err(message) => return self.refuse(token, 0, "INVALID_USER", message),
        };
        let cwd = match working_directory(&order, &user) {
            Ok(cwd) => cwd,
            Err(message) => return self.refuse(token, 0, "FILE_NOT_FOUND", message),
        };
        let pty = match (order.pty_rows > 0)
            .then(|| open_pty(&order, &user))
            .transpose()
        {
            Ok(pty) => pty,
            Err(error) => {
                let message = format!("the sandbox has no terminal to give (/dev/ptmx: {error})");
                return self.refuse(token, 0, "NOT_SUPPORTED", message);
            }
        };
        let mut fds = fds.into_iter();
        let leaf = if order.has_leaf { fds.next() } else { None };
        let fds: Vec<OwnedFd> = fds.collect();
        let mut in_leaf = leaf.is_some();
        let forked = match self.fork(leaf.as_ref()) {
            // The leaf may not be entered: without it the tree is found by its parents.
            Err(libc::EACCES | libc::EPERM | libc::ENOENT | libc::EOPNOTSUPP) if in_leaf => {
                in_leaf = false;
                self.fork(None)
            }
            forked => forked,
        };
        match forked {
            Ok(0) => self.run_command(order, &user, &cwd, &fds, pty),
            Ok(pid) => {
                self.remember(pid, token);
                let report = Report {
                    news: news::STARTED,
                    token,
                    cwd,
                    in_leaf,
                    ..Default::default()
                };
                match &pty {
                    Some(pty) => self.report(&report, &[pty.master.as_fd()]),
                    None => self.report(&report, &[]),
                }
            }
            Err(errno) => self.refuse(token, errno, "", String::new()),
        }
    }

    fn run_command(
        &self,
        order: Order,
        user: &User,
        cwd: &[u8],
        fds: &[OwnedFd],
        pty: Option<Pty>,
    ) -> ! {
        child::reset();
        let null = self.null.as_ref().map_or(-1, |fd| fd.as_raw_fd());
        let mut wanted = vec![(self.setup.shell.as_raw_fd(), child::SHELL)];
        match &pty {
            Some(pty) => wanted.extend((0..3).map(|number| (pty.slave.as_raw_fd(), number))),
            None => {
                let mut given = fds.iter().map(|fd| fd.as_raw_fd());
                let stdin = if order.has_stdin {
                    given.next().unwrap_or(null)
                } else {
                    null
                };
                wanted.push((stdin, 0));
                if order.session {
                    // What a shell says outside of calls, such as the trace of its driver, is for nobody.
                    wanted.extend([(null, 1), (null, 2), (null, child::SESSION_NULL)]);
                    wanted.extend(given.next().map(|fd| (fd, child::SESSION_STATUS)));
                    wanted.extend(
                        self.private
                            .as_ref()
                            .map(|fd| (fd.as_raw_fd(), child::SESSION_PRIVATE)),
                    );
                } else {
                    wanted.extend(given.next().map(|fd| (fd, 1)));
                    wanted.extend(given.next().map(|fd| (fd, 2)));
                }
            }
        }
        let script = (!order.script.is_empty()).then(|| sys::memfd(&order.script));
        if let Some(Ok(script)) = &script {
            wanted.push((script.as_raw_fd(), child::SCRIPT));
        }
        child::place(&wanted, true);
        if pty.is_some() {
            // SAFETY: 0 is the terminal, and this process leads a session without one.
            unsafe { libc::ioctl(0, libc::TIOCSCTTY, 0) };
        }
        child::become_user(&self.setup, user);
        let c_cwd = std::ffi::CString::new(cwd).unwrap_or_default();
        // SAFETY: the path ends in NUL.
        if unsafe { libc::chdir(c_cwd.as_ptr()) } != 0 {
            child::fail(126, cwd, &child::error_text(sys::errno()));
        }
        let mut env = order.env;
        let home = if user.home.is_empty() {
            b"/".to_vec()
        } else {
            user.home.clone()
        };
        for (name, value) in [
            ("HOME", &home[..]),
            ("USER", user.name.as_bytes()),
            ("LOGNAME", user.name.as_bytes()),
            ("SHELL", &user.shell[..]),
        ] {
            let prefix = format!("{name}=").into_bytes();
            if !env.iter().any(|variable| variable.starts_with(&prefix)) {
                env.push([&prefix[..], value].concat());
            }
        }
        if order.shell {
            exec::shell(order.argv, env)
        } else {
            exec::program(order.argv, env)
        }
    }

    pub(super) fn worker(&mut self, order: Order, fds: Vec<OwnedFd>) {
        let token = order.token;
        let user = match self.users.resolve(&order.user) {
            Ok(user) => user,
            Err(message) => return self.refuse(token, 0, "INVALID_USER", message),
        };
        let Some(connection) = fds.first() else {
            return;
        };
        let cwd = working_directory(&order, &user).unwrap_or_else(|_| b"/".to_vec());
        match self.fork(None) {
            Ok(0) => {
                child::reset();
                let null = self.null.as_ref().map_or(-1, |fd| fd.as_raw_fd());
                child::place(
                    &[(null, 0), (null, 1), (null, 2), (connection.as_raw_fd(), 3)],
                    false,
                );
                child::become_user(&self.setup, &user);
                child::cut_capabilities(self.setup.child_caps);
                let c_cwd = std::ffi::CString::new(cwd).unwrap_or_default();
                // SAFETY: the path ends in NUL; a directory that may not be entered leaves "/".
                unsafe { libc::chdir(c_cwd.as_ptr()) };
                use std::os::fd::FromRawFd;
                // SAFETY: 3 was just placed; the older owner never drops, since serve does not return.
                let connection = unsafe { OwnedFd::from_raw_fd(3) };
                let Ok(request) = wire::AetherRequest::decode(&order.request[..]) else {
                    // SAFETY: ends the process.
                    unsafe { libc::_exit(1) }
                };
                crate::files::serve(connection, request, order.early)
            }
            Ok(pid) => {
                self.remember(pid, token);
                self.report(
                    &Report {
                        news: news::STARTED,
                        token,
                        ..Default::default()
                    },
                    &[],
                );
            }
            Err(errno) => self.refuse(token, errno, "", String::new()),
        }
    }
}

/// Absolute. As asked, which must be there; else the sandbox's or the user's default, or "/".
fn working_directory(order: &Order, user: &User) -> Result<Vec<u8>, String> {
    let default = [&order.default_cwd[..], &user.home[..]]
        .into_iter()
        .find(|path| path.starts_with(b"/") && is_directory(path))
        .unwrap_or(b"/")
        .to_vec();
    if order.cwd.is_empty() {
        return Ok(default);
    }
    let path = if order.cwd.starts_with(b"/") {
        order.cwd.clone()
    } else {
        [&default[..], b"/", &order.cwd].concat()
    };
    if is_directory(&path) {
        return Ok(path);
    }
    Err(format!(
        "the working directory {:?} is not there",
        String::from_utf8_lossy(&path)
    ))
}

/// Also where it cannot be told: that is then the child's to meet, as its own user.
fn is_directory(path: &[u8]) -> bool {
    let Ok(path) = std::ffi::CString::new(path) else {
        return false;
    };
    // SAFETY: the kernel writes stat.
    unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        if libc::stat(path.as_ptr(), &mut stat) != 0 {
            return !matches!(
                sys::errno(),
                libc::ENOENT | libc::ENOTDIR | libc::ENAMETOOLONG | libc::ELOOP
            );
        }
        stat.st_mode & libc::S_IFMT == libc::S_IFDIR
    }
}

/// Both ends of a terminal of the sandbox's own devpts, for UTF-8 and of the asked size, owned by the user.
fn open_pty(order: &Order, user: &User) -> std::io::Result<Pty> {
    let master = super::open_path(c"/dev/ptmx", libc::O_RDWR | libc::O_NOCTTY)?;
    let unlock: libc::c_int = 0;
    // SAFETY: each request gets the type it wants; the slave's descriptor is fresh.
    unsafe {
        use std::os::fd::FromRawFd;
        sys::check(libc::ioctl(master.as_raw_fd(), libc::TIOCSPTLCK, &unlock))?;
        let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
        let slave = sys::check(libc::ioctl(master.as_raw_fd(), libc::TIOCGPTPEER, flags))?;
        let slave = OwnedFd::from_raw_fd(slave);
        let mut modes: libc::termios = std::mem::zeroed();
        if libc::tcgetattr(slave.as_raw_fd(), &mut modes) == 0 {
            modes.c_iflag |= libc::IUTF8;
            libc::tcsetattr(slave.as_raw_fd(), libc::TCSANOW, &modes);
        }
        let size = libc::winsize {
            ws_row: order.pty_rows as u16,
            ws_col: order.pty_cols as u16,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        libc::ioctl(master.as_raw_fd(), libc::TIOCSWINSZ, &size);
        libc::fchown(slave.as_raw_fd(), user.uid, u32::MAX);
        Ok(Pty { master, slave })
    }
}
