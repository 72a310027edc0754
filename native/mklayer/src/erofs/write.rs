//! Puts the image into bytes.
use super::layout::{
    chunks, dir_blocks, extra_padding, layout, sorted_names, xattr_index, xattrs_of, xattrs_size,
    Layout, Tail, FIRST_INODE,
};
use crate::data::{Content, BLOCK};
use crate::error::{Failure, Result};
use crate::tree::{Body, Node, NodeId, Tree, ROOT};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::Write;

const SUPER_OFFSET: usize = 1024;
const MAGIC: u32 = 0xe0f5_e1e2;
const COMPAT_CHECKSUM: u32 = 1;
const COMPAT_MTIME: u32 = 2;
const INCOMPAT_CHUNKED_FILE: u32 = 4;
const INCOMPAT_DEVICE_TABLE: u32 = 8;
const DEVICE_SLOT: usize = 1152;
const FLAT_PLAIN: u16 = 0;
const FLAT_INLINE: u16 = 2;
const CHUNK_BASED: u16 = 4;
const CHUNK_INDEXES: u16 = 0x20;
const NULL_BLOCK: u32 = u32::MAX;
/// The same in every image: an image is named by its digest.
const UUID: [u8; 16] = *b"dsec-layer-v1\0\0\0";

/// The image's size, SHA-256 and number of inodes.
pub struct Written {
    pub bytes: u64,
    pub sha256: [u8; 32],
    pub inodes: u64,
}

/// Writes the image of `tree` to `file`, from its start. `data` is size in bytes and SHA-256 of the data file.
pub fn write(
    tree: &Tree,
    contents: &[Content],
    data: (u64, [u8; 32]),
    file: &File,
) -> Result<Written> {
    let data_blocks = u32::try_from(data.0 / BLOCK)
        .map_err(|_| Failure::limit("the data is larger than 16 TiB"))?;
    let layout = layout(tree, contents)?;
    let mut out = Out {
        file,
        buffer: Vec::new(),
        at: 0,
        hash: Sha256::new(),
    };
    out.buffer = superblock(&layout, data_blocks, &data.1);
    for (number, &id) in layout.order.iter().enumerate() {
        out.pad_to(layout.offsets[id as usize])?;
        inode(&mut out, tree, contents, &layout, id, number as u32)?;
    }
    out.pad_to(layout.inode_blocks * BLOCK)?;
    for &id in &layout.order {
        own_blocks(&mut out, tree, &layout, id)?;
    }
    out.flush()?;
    let (bytes, sha256) = (out.at, out.hash.finalize().into());
    debug_assert_eq!(bytes, layout.total_blocks * BLOCK);
    Ok(Written {
        bytes,
        sha256,
        inodes: layout.order.len() as u64,
    })
}

struct Out<'a> {
    file: &'a File,
    buffer: Vec<u8>,
    /// Offset of `buffer[0]`.
    at: u64,
    hash: Sha256,
}

impl Out<'_> {
    fn position(&self) -> u64 {
        self.at + self.buffer.len() as u64
    }

    fn put(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    fn pad_to(&mut self, position: u64) -> Result<()> {
        let missing = position
            .checked_sub(self.position())
            .ok_or_else(|| Failure::internal("the layout overlaps"))?;
        self.buffer.resize(self.buffer.len() + missing as usize, 0);
        if self.buffer.len() >= 1 << 20 {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        if self.at == 0 && self.buffer.len() >= BLOCK as usize {
            let sum = crc32c(&self.buffer[SUPER_OFFSET..BLOCK as usize]);
            self.buffer[SUPER_OFFSET + 4..SUPER_OFFSET + 8].copy_from_slice(&sum.to_le_bytes());
        }
        self.hash.update(&self.buffer);
        self.file
            .write_all(&self.buffer)
            .map_err(|e| Failure::output("metadata", &e))?;
        self.at += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}

fn superblock(layout: &Layout, data_blocks: u32, data_sha256: &[u8; 32]) -> Vec<u8> {
    let mut block = vec![0u8; FIRST_INODE as usize];
    let mut incompat = 0;
    if layout.chunked {
        incompat |= INCOMPAT_CHUNKED_FILE;
    }
    let sb = &mut block[SUPER_OFFSET..];
    let mut set = |at: usize, bytes: &[u8]| sb[at..at + bytes.len()].copy_from_slice(bytes);
    set(0, &MAGIC.to_le_bytes());
    set(8, &(COMPAT_CHECKSUM | COMPAT_MTIME).to_le_bytes());
    set(12, &[12, 0]);
    set(14, &(layout.nid(ROOT) as u16).to_le_bytes());
    set(16, &(layout.order.len() as u64).to_le_bytes());
    set(36, &(layout.total_blocks as u32).to_le_bytes());
    set(48, &UUID);
    if data_blocks > 0 {
        incompat |= INCOMPAT_DEVICE_TABLE;
        set(86, &1u16.to_le_bytes());
        set(88, &((DEVICE_SLOT / 128) as u16).to_le_bytes());
        let slot = DEVICE_SLOT - SUPER_OFFSET;
        let hex: String = data_sha256.iter().map(|b| format!("{b:02x}")).collect();
        set(slot, hex.as_bytes());
        set(slot + 64, &data_blocks.to_le_bytes());
        // Also right where metadata and data are one device, the data behind the metadata.
        set(slot + 68, &(layout.total_blocks as u32).to_le_bytes());
    }
    set(80, &incompat.to_le_bytes());
    block
}

fn inode(
    out: &mut Out,
    tree: &Tree,
    contents: &[Content],
    layout: &Layout,
    id: NodeId,
    number: u32,
) -> Result<()> {
    let node = &tree.nodes[id as usize];
    let xattrs = xattrs_of(node);
    let size_of_xattrs = xattrs_size(&xattrs);
    let tail = layout.tails[id as usize];
    let (mut format, mut word) = match tail {
        Tail::Blocks { start } => (FLAT_PLAIN, start),
        Tail::Inline { start } => (FLAT_INLINE, start),
        Tail::None => (FLAT_PLAIN, NULL_BLOCK),
    };
    let mut size = 0;
    let mut links = node.links;
    let mut tail_bytes = Vec::new();
    let kind = match &node.body {
        Body::Dir(dir) => {
            let names = sorted_names(dir, id);
            let blocks = dir_blocks(&names);
            let last = blocks.last().map_or((0, 0), |b| *b);
            size = (blocks.len() as u64 - 1) * BLOCK + last.1;
            if matches!(tail, Tail::Inline { .. }) {
                tail_bytes = dirents(tree, layout, &names[names.len() - last.0..]);
            }
            let children = dir
                .children
                .values()
                .filter(|c| tree.dir(c.node).is_some())
                .count();
            links = 2 + children as u32;
            libc::S_IFDIR
        }
        Body::Symlink(target) => {
            size = target.len() as u64;
            if matches!(tail, Tail::Inline { .. }) {
                tail_bytes = target.to_vec();
            }
            libc::S_IFLNK
        }
        Body::File {
            size: bytes,
            content,
        } => {
            size = *bytes;
            if size > 0 {
                let (bits, _) = chunks(size, content.map(|c| &contents[c as usize]));
                format = CHUNK_BASED;
                word = u32::from((bits - 12) as u16 | CHUNK_INDEXES);
            }
            libc::S_IFREG
        }
        Body::Char(device) => {
            word = *device;
            libc::S_IFCHR
        }
        Body::Block(device) => {
            word = *device;
            libc::S_IFBLK
        }
        Body::Fifo => libc::S_IFIFO,
    };
    // Links have all permissions, whatever the archive says.
    let permissions = if kind == libc::S_IFLNK {
        0o777
    } else {
        u32::from(node.attributes.mode)
    };
    let icount = if size_of_xattrs == 0 {
        0
    } else {
        (size_of_xattrs - 12) / 4 + 1
    };
    out.put(&(1 | format << 1).to_le_bytes());
    out.put(&(icount as u16).to_le_bytes());
    out.put(&((kind | permissions) as u16).to_le_bytes());
    out.put(&[0; 2]);
    out.put(&size.to_le_bytes());
    out.put(&word.to_le_bytes());
    out.put(&(number + 1).to_le_bytes());
    out.put(&node.attributes.uid.to_le_bytes());
    out.put(&node.attributes.gid.to_le_bytes());
    out.put(&node.attributes.mtime.to_le_bytes());
    out.put(&node.attributes.mtime_nsec.to_le_bytes());
    out.put(&links.to_le_bytes());
    out.put(&[0; 16]);
    if size_of_xattrs > 0 {
        put_xattrs(out, &xattrs);
    }
    out.put(&tail_bytes);
    if format == CHUNK_BASED {
        let head = super::layout::INODE_SIZE + size_of_xattrs;
        out.put(&[0; 8][..extra_padding(head, 8) as usize]);
        put_chunks(out, node, contents)?;
    }
    Ok(())
}

fn put_xattrs(out: &mut Out, xattrs: &crate::tar::Xattrs) {
    out.put(&[0; 12]);
    for (name, value) in xattrs {
        let (index, rest) = xattr_index(name);
        out.put(&[rest.len() as u8, index]);
        out.put(&(value.len() as u16).to_le_bytes());
        out.put(rest);
        out.put(value);
        let used = 4 + rest.len() + value.len();
        out.put(&[0; 4][..used.next_multiple_of(4) - used]);
    }
}

fn put_chunks(out: &mut Out, node: &Node, contents: &[Content]) -> Result<()> {
    let Body::File { content, .. } = &node.body else {
        return Ok(());
    };
    let Some(content) = content.map(|c| &contents[c as usize]) else {
        put_chunk(out, None);
        return Ok(());
    };
    let block = |relative: u32| -> Result<u32> {
        u32::try_from(content.base + u64::from(relative))
            .map_err(|_| Failure::limit("the data is larger than 16 TiB"))
    };
    match &content.map {
        None => put_chunk(out, Some(block(0)?)),
        Some(map) => {
            for chunk in &map.chunks {
                put_chunk(out, chunk.map(block).transpose()?);
            }
        }
    }
    Ok(())
}

/// A chunk's index: a reserved half-word, the device (1 is the data file), the block.
fn put_chunk(out: &mut Out, block: Option<u32>) {
    let device = u16::from(block.is_some());
    out.put(&[0; 2]);
    out.put(&device.to_le_bytes());
    out.put(&block.unwrap_or(NULL_BLOCK).to_le_bytes());
}

/// The blocks that a directory or link has outside its inode.
fn own_blocks(out: &mut Out, tree: &Tree, layout: &Layout, id: NodeId) -> Result<()> {
    let (start, inline) = match layout.tails[id as usize] {
        Tail::None => return Ok(()),
        Tail::Blocks { start } => (start, false),
        Tail::Inline { start } => (start, true),
    };
    let first = u64::from(start) * BLOCK;
    match &tree.nodes[id as usize].body {
        Body::Symlink(target) if !inline => {
            out.pad_to(first)?;
            out.put(target);
        }
        Body::Dir(dir) => {
            let names = sorted_names(dir, id);
            let blocks = dir_blocks(&names);
            let count = blocks.len() - usize::from(inline);
            let mut rest = names.as_slice();
            for (i, (names_here, _)) in blocks[..count].iter().enumerate() {
                let (here, later) = rest.split_at(*names_here);
                out.pad_to(first + i as u64 * BLOCK)?;
                let bytes = dirents(tree, layout, here);
                out.put(&bytes);
                rest = later;
            }
        }
        _ => return Ok(()),
    }
    let end = out.position().next_multiple_of(BLOCK);
    out.pad_to(end)
}

fn dirents(tree: &Tree, layout: &Layout, names: &[(&[u8], NodeId)]) -> Vec<u8> {
    let mut out = Vec::with_capacity(BLOCK as usize);
    let mut offset = 12 * names.len();
    for (name, id) in names {
        out.extend(layout.nid(*id).to_le_bytes());
        out.extend((offset as u16).to_le_bytes());
        out.extend([file_type(&tree.nodes[*id as usize]), 0]);
        offset += name.len();
    }
    for (name, _) in names {
        out.extend_from_slice(name);
    }
    out
}

fn file_type(node: &Node) -> u8 {
    match node.body {
        Body::File { .. } => 1,
        Body::Dir(_) => 2,
        Body::Char(_) => 3,
        Body::Block(_) => 4,
        Body::Fifo => 5,
        Body::Symlink(_) => 7,
    }
}

/// CRC-32C as the kernel takes it: all ones at the start, nothing at the end.
fn crc32c(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = crc >> 1 ^ (0x82f6_3b78 & (crc & 1).wrapping_neg());
        }
    }
    crc
}
