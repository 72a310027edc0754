//! Files of the sandbox. A worker is a forked child that is already inside: in the sandbox's namespaces and cgroups,
//! as the asked user, with the sandbox's root as its own. It answers one call and ends. Everything it meets may have
//! been made by the agent, but it can do no more than the user it runs as.

mod archive;
mod body;
mod connection;
mod copy;
mod entries;
mod failure;
mod info;
mod kernel_fs;
mod path;
mod read;
mod sys;
mod tar;
mod tree_read;
mod tree_write;
mod walk;
mod watch;
mod write;
mod xattr;

use std::os::fd::OwnedFd;

use wire::aether_request::Call;
use wire::AetherRequest;

use connection::Connection;
use failure::{Failure, Outcome};

/// Answers the one call on the edge's connection and ends the process. `early` are bytes of the connection that
/// were read already and come before what is still to be read. One thread; never returns.
pub fn serve(connection: OwnedFd, request: AetherRequest, early: Vec<u8>) -> ! {
    // SAFETY: changes settings of this process. Modes are given whole in each call; a file that grows beyond a limit
    // is an error to be told, not an end by signal.
    unsafe {
        libc::umask(0);
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
    let mut connection = Connection::new(connection, request.id, early);
    let sends_contents = matches!(request.call, Some(Call::WriteFile(_) | Call::WriteTree(_)));
    if let Err(failure) = answer(&mut connection, request.call) {
        connection.fail(failure, sends_contents);
    }
    // Not exit(): what the parent registered for its own end is none of ours.
    // SAFETY: ends the process.
    unsafe { libc::_exit(0) }
}

fn answer(connection: &mut Connection, call: Option<Call>) -> Outcome<()> {
    match call {
        Some(Call::Stat(ask)) => info::stat(connection, &ask),
        Some(Call::ListDirectory(ask)) => info::list_directory(connection, &ask),
        Some(Call::MakeDirectory(ask)) => entries::make_directory(connection, &ask),
        Some(Call::Move(ask)) => entries::move_entry(connection, &ask),
        Some(Call::Remove(ask)) => entries::remove(connection, &ask),
        Some(Call::Watch(ask)) => watch::watch(connection, &ask),
        Some(Call::ReadFile(ask)) => read::read_file(connection, &ask),
        Some(Call::WriteFile(ask)) => write::write_file(connection, &ask),
        Some(Call::ReadTree(ask)) => tree_read::read_tree(connection, &ask),
        Some(Call::WriteTree(ask)) => tree_write::write_tree(connection, &ask),
        _ => Err(Failure::new(
            "NO_SUCH_METHOD",
            "a file worker was asked for what is no call on files",
        )),
    }
}
