//! Writes the metadata image. Format: Linux' Documentation/filesystems/erofs and its erofs_fs.h.
mod layout;
mod write;

pub use write::write;
