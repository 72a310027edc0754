//! Applies archives to the tree, lowest first, as OCI layers are applied.
use crate::data::{ChunkMap, ContentId, DataWriter, BLOCK};
use crate::error::{shown, Failure, Result};
use crate::tar::{Entry, Kind, Segment, TarReader, Xattrs};
use crate::tree::{components, Attributes, Body, Child, NodeId, Tree, ROOT};

const PREFIX: &[u8] = b".wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";
const MAX_XATTRS: usize = 128 << 10;
const MAX_LINK: usize = 4095;

/// What becomes of whiteouts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whiteouts {
    /// `.wh.` names are ordinary.
    Plain,
    /// Nothing stands below: they are applied among the inputs and dropped.
    Bottom,
    /// Applied; one that hides nothing among the inputs is kept for what stands below.
    Between,
    /// Applied, and all are kept for what stands below.
    Upper,
}

/// Applies one archive; `layer` counts from 0.
pub fn apply(
    tree: &mut Tree,
    data: &mut DataWriter,
    reader: &mut TarReader,
    layer: u32,
    whiteouts: Whiteouts,
    on_entry: &mut dyn FnMut(u64),
) -> Result<()> {
    let mut merge = Merge {
        tree,
        data,
        layer,
        whiteouts,
    };
    while let Some(entry) = reader.next_entry()? {
        merge.entry(entry, reader)?;
        on_entry(reader.total());
    }
    Ok(())
}

struct Merge<'a> {
    tree: &'a mut Tree,
    data: &'a mut DataWriter,
    layer: u32,
    whiteouts: Whiteouts,
}

impl Merge<'_> {
    fn entry(&mut self, entry: Entry, reader: &mut TarReader) -> Result<()> {
        let path = entry.path.clone();
        let parts = components(&path)?;
        let Some((name, above)) = parts.split_last() else {
            return self.root(entry);
        };
        if self.whiteouts != Whiteouts::Plain {
            // AUFS kept its own books under such names.
            if *name != OPAQUE && parts.iter().any(|part| part.starts_with(b".wh..wh.")) {
                return Ok(());
            }
            if name.starts_with(PREFIX) {
                let dir = self.directory(above)?;
                return if *name == OPAQUE {
                    self.opaque(dir)
                } else {
                    self.whiteout(dir, &name[PREFIX.len()..])
                };
            }
        }
        let dir = self.directory(above)?;
        let (xattrs, opaque) = kept_xattrs(entry.xattrs, &path)?;
        let attributes = Attributes {
            mode: entry.mode,
            uid: entry.uid,
            gid: entry.gid,
            mtime: entry.mtime,
            mtime_nsec: entry.mtime_nsec,
            xattrs,
        };
        let body = match entry.kind {
            Kind::Dir => return self.dir(dir, name, attributes, opaque),
            Kind::Hardlink(target) => return self.hardlink(dir, name, &target, &path),
            Kind::File { size, segments } => Body::File {
                size,
                content: self.content(reader, size, segments)?,
            },
            Kind::Symlink(target)
                if target.is_empty() || target.len() > MAX_LINK || target.contains(&0) =>
            {
                return Err(Failure::invalid(format!(
                    "the link {} has a bad target",
                    shown(&path)
                )));
            }
            Kind::Symlink(target) => {
                self.tree.charge(target.len() as u64)?;
                Body::Symlink(target.into_boxed_slice())
            }
            Kind::Char { major, minor } => Body::Char(device(major, minor, &path)?),
            Kind::Block { major, minor } => Body::Block(device(major, minor, &path)?),
            Kind::Fifo => Body::Fifo,
        };
        let node = self.tree.add(attributes, body)?;
        self.tree.link(dir, name, node, self.layer)
    }

    fn directory(&mut self, path: &[&[u8]]) -> Result<NodeId> {
        self.tree
            .walk(path, Some(self.layer))?
            .ok_or_else(|| Failure::internal("a directory was not made"))
    }

    fn root(&mut self, entry: Entry) -> Result<()> {
        if entry.kind != Kind::Dir {
            return Err(Failure::invalid("the root is no directory"));
        }
        let (xattrs, _) = kept_xattrs(entry.xattrs, b".")?;
        let Entry {
            mode,
            uid,
            gid,
            mtime,
            mtime_nsec,
            ..
        } = entry;
        self.tree.nodes[ROOT as usize].attributes = Attributes {
            mode,
            uid,
            gid,
            mtime,
            mtime_nsec,
            xattrs,
        };
        Ok(())
    }

    fn dir(
        &mut self,
        parent: NodeId,
        name: &[u8],
        attributes: Attributes,
        opaque: bool,
    ) -> Result<()> {
        let known = self.tree.child(parent, name);
        let id = match known {
            Some(child) if self.tree.dir(child.node).is_some() => {
                self.tree.nodes[child.node as usize].attributes = attributes;
                let layer = self.layer;
                if let Some(child) = self
                    .tree
                    .dir_mut(parent)
                    .and_then(|d| d.children.get_mut(name))
                {
                    child.layer = layer;
                }
                child.node
            }
            _ => {
                let id = self.tree.new_dir_in(parent, attributes)?;
                let over = known.is_some_and(|c| self.tree.nodes[c.node as usize].is_whiteout());
                self.tree.link(parent, name, id, self.layer)?;
                self.set_opaque(id, over);
                id
            }
        };
        self.set_opaque(id, opaque);
        Ok(())
    }

    fn set_opaque(&mut self, dir: NodeId, opaque: bool) {
        if let Some(dir) = self.tree.dir_mut(dir) {
            dir.opaque |= opaque;
        }
    }

    fn hardlink(&mut self, dir: NodeId, name: &[u8], target: &[u8], path: &[u8]) -> Result<()> {
        let parts = components(target)?;
        let missing = || {
            Failure::invalid(format!(
                "{} is a link to {}, which is not there",
                shown(path),
                shown(target)
            ))
        };
        let (last, above) = parts.split_last().ok_or_else(missing)?;
        let parent = self.tree.walk(above, None)?.ok_or_else(missing)?;
        let child = self.tree.child(parent, last).ok_or_else(missing)?;
        if self.tree.dir(child.node).is_some() {
            return Err(Failure::invalid(format!(
                "{} is a hard link to a directory",
                shown(path)
            )));
        }
        self.tree.link(dir, name, child.node, self.layer)
    }

    fn opaque(&mut self, dir: NodeId) -> Result<()> {
        let hidden = self.tree.hide_below(dir, self.layer);
        let keep = match self.whiteouts {
            Whiteouts::Plain | Whiteouts::Bottom => false,
            Whiteouts::Between => hidden == 0,
            Whiteouts::Upper => true,
        };
        self.set_opaque(dir, keep);
        Ok(())
    }

    /// A whiteout hides what lower inputs have; what this one has of the same name stays.
    fn whiteout(&mut self, dir: NodeId, name: &[u8]) -> Result<()> {
        if matches!(name, b"" | b"." | b"..") {
            return Err(Failure::invalid("a whiteout names nothing"));
        }
        let Some(child) = self.tree.child(dir, name) else {
            return if self.whiteouts == Whiteouts::Bottom {
                Ok(())
            } else {
                self.put_whiteout(dir, name)
            };
        };
        let Child { node, layer } = child;
        let was_whiteout = self.tree.nodes[node as usize].is_whiteout();
        let hidden = self.tree.hide(dir, name, child, self.layer);
        let keep = match self.whiteouts {
            Whiteouts::Plain | Whiteouts::Bottom => false,
            Whiteouts::Between => hidden == 0 || was_whiteout,
            Whiteouts::Upper => true,
        };
        if !keep {
            return Ok(());
        }
        match self.tree.child(dir, name) {
            None => self.put_whiteout(dir, name),
            Some(left) if self.tree.dir(left.node).is_some() => {
                self.set_opaque(left.node, true);
                Ok(())
            }
            Some(_) => {
                debug_assert!(layer == self.layer);
                Ok(())
            }
        }
    }

    fn put_whiteout(&mut self, dir: NodeId, name: &[u8]) -> Result<()> {
        let node = self.tree.add(Attributes::default(), Body::Char(0))?;
        self.tree.link(dir, name, node, self.layer)
    }

    fn content(
        &mut self,
        reader: &mut TarReader,
        size: u64,
        segments: Option<Vec<Segment>>,
    ) -> Result<Option<ContentId>> {
        match segments {
            _ if size == 0 => Ok(None),
            None => self.dense(reader, size).map(Some),
            Some(segments) if segments.is_empty() => Ok(None),
            Some(segments) => self.sparse(reader, size, &segments).map(Some),
        }
    }

    fn dense(&mut self, reader: &mut TarReader, size: u64) -> Result<ContentId> {
        self.data.begin();
        self.copy(reader, size)?;
        self.data.finish(size, None)
    }

    fn copy(&mut self, reader: &mut TarReader, mut rest: u64) -> Result<()> {
        while rest > 0 {
            let part = reader.body()?;
            let n = (part.len() as u64).min(rest) as usize;
            if n == 0 {
                return Err(Failure::invalid("a file is shorter than its header says"));
            }
            self.data.append(&part[..n])?;
            reader.consume(n);
            rest -= n as u64;
        }
        Ok(())
    }

    /// Chunks without a run of data are holes; the others are filled up with zeros.
    fn sparse(
        &mut self,
        reader: &mut TarReader,
        size: u64,
        segments: &[Segment],
    ) -> Result<ContentId> {
        let bits = chunk_bits(size);
        let chunk = 1u64 << bits;
        let count = size.div_ceil(chunk) as usize;
        self.tree.charge(8 * count as u64)?;
        let mut chunks: Vec<Option<u32>> = vec![None; count];
        self.data.begin();
        let start = self.data.position();
        // Where in the file the next byte of data goes; the current chunk is filled up to there.
        let mut at = 0u64;
        for segment in segments {
            let (mut offset, mut length) = (segment.offset, segment.length);
            while length > 0 {
                let index = offset / chunk;
                if chunks[index as usize].is_none() {
                    if at % chunk != 0 {
                        self.data.append_zeros(chunk - at % chunk)?;
                    }
                    let block = (self.data.position() - start) / BLOCK;
                    let block = u32::try_from(block)
                        .map_err(|_| Failure::limit("a sparse file holds too much"))?;
                    chunks[index as usize] = Some(block);
                    at = index * chunk;
                }
                self.data.append_zeros(offset - at)?;
                let part = length.min((index + 1) * chunk - offset);
                self.copy(reader, part)?;
                offset += part;
                length -= part;
                at = offset;
            }
        }
        // The tail of the last chunk, as far as the file goes.
        let end = size.min(at.next_multiple_of(chunk));
        self.data.append_zeros(end - at)?;
        self.data.finish(size, Some(ChunkMap { bits, chunks }))
    }
}

/// 4 KiB for small files, 64 KiB for most, and never more than about a million chunks.
fn chunk_bits(size: u64) -> u32 {
    let log = size.next_power_of_two().trailing_zeros();
    12.max(16.min(log.saturating_sub(12)))
        .max(log.saturating_sub(20))
}

fn device(major: u32, minor: u32, path: &[u8]) -> Result<u32> {
    if major >= 1 << 12 || minor >= 1 << 20 {
        return Err(Failure::invalid(format!(
            "{} has a device number out of range",
            shown(path)
        )));
    }
    Ok(minor & 0xff | major << 8 | (minor & !0xff) << 12)
}

/// The attributes that a layer keeps, and whether the directory is opaque. What would steer overlayfs or the host's
/// security modules is dropped.
fn kept_xattrs(xattrs: Xattrs, path: &[u8]) -> Result<(Xattrs, bool)> {
    let mut opaque = false;
    let mut kept = Xattrs::new();
    let mut total = 0;
    for (name, value) in xattrs {
        if name.starts_with(b"trusted.overlay.") || name.starts_with(b"user.overlay.") {
            opaque |= *name == *b"trusted.overlay.opaque" && *value == *b"y";
            continue;
        }
        let known = name.starts_with(b"user.")
            || name.starts_with(b"trusted.")
            || *name == *b"security.capability"
            || *name == *b"system.posix_acl_access"
            || *name == *b"system.posix_acl_default";
        if !known {
            continue;
        }
        total += name.len() + value.len() + 8;
        if name.len() > 255 || name.contains(&0) || value.len() > 65_535 || total > MAX_XATTRS {
            return Err(Failure::limit(format!(
                "the extended attributes of {} are too large",
                shown(path)
            )));
        }
        kept.push((name, value));
    }
    Ok((kept, opaque))
}
