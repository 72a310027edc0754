//! Users as the sandbox's own /etc/passwd and /etc/group name them. Both files are the agent's: they are read with
//! limits, and only where they are regular files of a real file system (one of /proc could block).

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::sys;

const MAX_FILE: usize = 1 << 20;
const MAX_GROUPS: usize = 1024;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    pub name: String,
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
    pub home: Vec<u8>,
    pub shell: Vec<u8>,
}

/// Both files, read again when they have changed.
#[derive(Default)]
pub struct Users {
    passwd: Cached,
    group: Cached,
    last: Option<(String, User)>,
}

#[derive(Default)]
struct Cached {
    /// Device, inode, size, changed at (seconds, nanoseconds).
    mark: (u64, u64, i64, i64, i64),
    text: Vec<u8>,
}

impl Cached {
    /// Whether it changed.
    fn refresh(&mut self, path: &std::ffi::CStr) -> bool {
        let opened = open_regular(path);
        let mark = opened.as_ref().map_or((0, 0, 0, 0, 0), |(_, mark)| *mark);
        if mark == self.mark {
            return false;
        }
        self.mark = mark;
        self.text = opened
            .map(|(file, _)| read_at_most(&file))
            .unwrap_or_default();
        true
    }
}

/// Device, inode, size and time of change: another mark means another file.
type Mark = (u64, u64, i64, i64, i64);

fn open_regular(path: &std::ffi::CStr) -> io::Result<(OwnedFd, Mark)> {
    // SAFETY: all zeroes is a valid open_how.
    let mut how: libc::open_how = unsafe { std::mem::zeroed() };
    how.flags = (libc::O_RDONLY | libc::O_NONBLOCK | libc::O_CLOEXEC | libc::O_NOCTTY) as u64;
    how.resolve = libc::RESOLVE_IN_ROOT | libc::RESOLVE_NO_MAGICLINKS;
    // SAFETY: the root is opened for its number only; path and how live through the calls.
    let file = unsafe {
        let root = sys::check(libc::open(c"/".as_ptr(), libc::O_PATH | libc::O_CLOEXEC))?;
        let root = OwnedFd::from_raw_fd(root);
        let fd = libc::syscall(
            libc::SYS_openat2,
            root.as_raw_fd(),
            path.as_ptr(),
            &how,
            std::mem::size_of::<libc::open_how>(),
        );
        OwnedFd::from_raw_fd(sys::check(fd as i32)?)
    };
    // SAFETY: both are written by the kernel.
    let (stat, fs) = unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        sys::check(libc::fstat(file.as_raw_fd(), &mut stat))?;
        let mut fs: libc::statfs = std::mem::zeroed();
        sys::check(libc::fstatfs(file.as_raw_fd(), &mut fs))?;
        (stat, fs)
    };
    const SYSFS: i64 = 0x6265_6572;
    if stat.st_mode & libc::S_IFMT != libc::S_IFREG
        || fs.f_type == libc::PROC_SUPER_MAGIC
        || fs.f_type == SYSFS
    {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    Ok((
        file,
        (
            stat.st_dev,
            stat.st_ino,
            stat.st_size,
            stat.st_ctime,
            stat.st_ctime_nsec,
        ),
    ))
}

fn read_at_most(file: &OwnedFd) -> Vec<u8> {
    let mut text = Vec::new();
    let mut chunk = [0; 4096];
    while text.len() < MAX_FILE {
        match sys::pread(file, &mut chunk, text.len() as u64) {
            Ok(n) if n > 0 => text.extend_from_slice(&chunk[..n]),
            _ => break,
        }
    }
    text
}

/// Fields of each line of a file in the form of /etc/passwd.
fn lines(text: &[u8]) -> impl Iterator<Item = Vec<&[u8]>> {
    text.split(|&b| b == b'\n')
        .filter(|line| line.len() <= 65536)
        .map(|line| line.splitn(7, |&b| b == b':').collect())
}

fn number(text: &[u8]) -> Option<u32> {
    let text = std::str::from_utf8(text).ok()?;
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    text.parse().ok().filter(|&n| n != u32::MAX)
}

impl Users {
    /// `user`: name or number, optionally ":group"; empty: root.
    pub fn resolve(&mut self, user: &str) -> Result<User, String> {
        let changed = self.passwd.refresh(c"/etc/passwd") | self.group.refresh(c"/etc/group");
        match &self.last {
            Some((name, found)) if !changed && name == user => return Ok(found.clone()),
            _ => {}
        }
        let found = resolve_in(user, &self.passwd.text, &self.group.text)?;
        self.last = Some((user.to_string(), found.clone()));
        Ok(found)
    }
}

fn resolve_in(user: &str, passwd: &[u8], group: &[u8]) -> Result<User, String> {
    let (name, group_name) = match user.split_once(':') {
        Some((name, group)) => (name, Some(group)),
        None => (user, None),
    };
    let name = if name.is_empty() { "root" } else { name };
    let entry = lines(passwd)
        .find(|f| f.len() >= 4 && f[0] == name.as_bytes())
        .or_else(|| {
            let uid = number(name.as_bytes())?;
            lines(passwd).find(|f| f.len() >= 4 && number(f[2]) == Some(uid))
        });
    let mut found = match entry
        .as_ref()
        .and_then(|f| Some((f, number(f[2])?, number(f[3])?)))
    {
        Some((fields, uid, gid)) => User {
            name: String::from_utf8_lossy(fields[0]).into_owned(),
            uid,
            gid,
            groups: Vec::new(),
            home: fields
                .get(5)
                .filter(|home| home.starts_with(b"/"))
                .unwrap_or(&&b"/"[..])
                .to_vec(),
            shell: fields
                .get(6)
                .filter(|s| s.starts_with(b"/"))
                .unwrap_or(&&b"/bin/sh"[..])
                .to_vec(),
        },
        // An image without /etc/passwd still has root.
        None => match number(name.as_bytes()).or(if name == "root" { Some(0) } else { None }) {
            Some(uid) => User {
                name: name.to_string(),
                uid,
                gid: if uid == 0 { 0 } else { uid },
                groups: Vec::new(),
                home: if uid == 0 {
                    b"/root".to_vec()
                } else {
                    b"/".to_vec()
                },
                shell: b"/bin/sh".to_vec(),
            },
            None => {
                return Err(format!(
                    "user {name:?} is not in the sandbox's /etc/passwd and is no number"
                ))
            }
        },
    };
    if entry.is_none() && found.uid != 0 {
        // As other runtimes do for a number that nobody has.
        found.gid = 0;
    }
    match group_name {
        Some(group_name) => {
            found.gid = lines(group)
                .find(|f| f.len() >= 3 && f[0] == group_name.as_bytes())
                .and_then(|f| number(f[2]))
                .or_else(|| number(group_name.as_bytes()))
                .ok_or_else(|| {
                    format!(
                        "group {group_name:?} is not in the sandbox's /etc/group and is no number"
                    )
                })?;
        }
        None => {
            found.groups = lines(group)
                .filter(|f| {
                    f.len() >= 4
                        && f[3]
                            .split(|&b| b == b',')
                            .any(|m| m == found.name.as_bytes())
                })
                .filter_map(|f| number(f[2]))
                .take(MAX_GROUPS)
                .collect();
        }
    }
    if !found.groups.contains(&found.gid) {
        found.groups.insert(0, found.gid);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &[u8] = b"root:x:0:0:root:/root:/bin/bash\nann:x:1000:1001::/home/ann:/bin/sh\nbroken\nodd:x:-1:3::/:\n";
    const GROUP: &[u8] = b"root:x:0:\nann:x:1001:\ng1:x:5:bob,ann\ng2:x:6:annie\n";

    fn resolve(user: &str) -> Result<User, String> {
        resolve_in(user, PASSWD, GROUP)
    }

    #[test]
    fn a_name_has_its_supplementary_groups() {
        let user = resolve("ann").unwrap();
        assert_eq!(
            (user.uid, user.gid, user.groups),
            (1000, 1001, vec![1001, 5])
        );
        assert_eq!(user.home, b"/home/ann");
        assert_eq!(resolve("1000").unwrap().name, "ann");
    }

    #[test]
    fn a_group_that_is_named_replaces_them() {
        let user = resolve("ann:g1").unwrap();
        assert_eq!((user.gid, user.groups), (5, vec![5]));
        assert_eq!(resolve("ann:77").unwrap().gid, 77);
        assert!(resolve("ann:nobody").is_err());
    }

    #[test]
    fn numbers_that_nobody_has_are_users_too_and_names_are_not() {
        let user = resolve("4242").unwrap();
        assert_eq!((user.uid, user.gid), (4242, 0));
        assert!(resolve("nobody").is_err());
        assert!(resolve("odd").is_err());
        assert!(resolve("4294967295").is_err());
        assert_eq!(resolve_in("", b"", b"").unwrap().uid, 0);
    }
}
