//! The file worker on real files: a forked child, with a temporary directory as its root, answers each call.

mod entries;
mod info;
mod read;
mod support;
mod tree_odd;
mod tree_read;
mod tree_write;
mod watch;
mod write;
