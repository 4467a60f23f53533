//! The library's file: what is to be mapped, and the words that depend on where.

use crate::{ENTRY, Error};
use object::LittleEndian as Endian;
use object::elf::{self, FileHeader64, ProgramHeader64, Rela64};
use object::read::elf::{Dyn, FileHeader, ProgramHeader, Sym, SymbolTable};
use object::read::{StringTable, SymbolIndex};
use std::ffi::CString;
use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

pub(crate) const PAGE: u64 = 4096;
/// Most bytes of a library's file, and of the memory that it is mapped to.
const MOST: u64 = 1 << 30;
const WORD: u64 = size_of::<u64>() as u64;
const LE: Endian = Endian;

type Header = FileHeader64<Endian>;
type Segments<'a> = &'a [ProgramHeader64<Endian>];

/// A library that can be mapped without a dynamic loader.
#[derive(Debug)]
pub struct Library {
    pub(crate) file: File,
    /// Path of the file.
    pub(crate) name: CString,
    pub(crate) segments: Vec<Segment>,
    /// Offset of [`ENTRY`] in the mapping.
    pub(crate) entry: u64,
    /// Pages that become read-only once they are relocated.
    pub(crate) read_only: Option<Range<u64>>,
    relocations: Vec<Relocation>,
}

/// Part of the file, and the memory that it is mapped to. Addresses are offsets in the mapping.
#[derive(Debug)]
pub(crate) struct Segment {
    pub at: u64,
    pub memory: u64,
    pub offset: u64,
    pub bytes: u64,
    pub flags: elf::ProgramFlags,
    /// Contents, with zeroes to the end of the page, if they are to be written.
    contents: Vec<u8>,
}

impl Segment {
    /// Returns the pages that are mapped from the file.
    pub fn of_file(&self) -> Range<u64> {
        let end = if self.bytes == 0 { down(self.at) } else { up(self.at + self.bytes) };
        down(self.at)..end
    }

    /// Returns all pages.
    pub fn pages(&self) -> Range<u64> {
        down(self.at)..up(self.at + self.memory)
    }

    fn is_written(&self) -> bool {
        self.flags.contains(elf::PF_W)
    }
}

/// A word of the library that depends on where it is mapped.
#[derive(Clone, Copy, Debug)]
struct Relocation {
    at: u64,
    value: Value,
}

#[derive(Clone, Copy, Debug)]
enum Value {
    /// The start of the mapping, and so many bytes more.
    Relative(u64),
    Absolute(u64),
}

fn down(at: u64) -> u64 {
    at & !(PAGE - 1)
}

fn up(at: u64) -> u64 {
    at.next_multiple_of(PAGE)
}

const CUT: Error = Error::Damaged("it is cut off");
const OUTSIDE: Error = Error::Damaged("a table lies outside of its segments");

impl Library {
    /// Opens and reads a library. The file has to stay as it is while programs run with it.
    ///
    /// # Errors
    /// The file cannot be read, is damaged, or needs a dynamic loader.
    pub fn open(path: &Path) -> Result<Library, Error> {
        let file = File::open(path).map_err(Error::Unreadable)?;
        let name =
            CString::new(path.as_os_str().as_bytes()).map_err(|e| Error::Unreadable(e.into()))?;
        let mut data = Vec::new();
        (&file).take(MOST).read_to_end(&mut data).map_err(Error::Unreadable)?;
        let header = Header::parse(&*data).map_err(|_| Error::Damaged("it is no ELF file"))?;
        let ours = header.is_class_64() && header.endian().is_ok();
        let (machine, kind) = (header.e_machine.get(LE), header.e_type.get(LE));
        if !ours || machine != elf::EM_X86_64 || kind != elf::ET_DYN {
            return Err(Error::Damaged("it is no library of this machine"));
        }
        let headers = header.program_headers(LE, &*data).map_err(|_| CUT)?;
        let tables = Tables::read(headers, &data)?;
        let sections = header.sections(LE, &*data).map_err(|_| CUT)?;
        let symbols = sections.symbols(LE, &*data, elf::SHT_DYNSYM).map_err(|_| CUT)?;
        let mut library = Library {
            segments: segments(headers, &data)?,
            entry: entry(&symbols)?,
            read_only: None,
            relocations: Vec::new(),
            file,
            name,
        };
        for table in [tables.relocations, tables.jumps] {
            library.relocate(&tables.contents(headers, &data, table)?, &symbols)?;
        }
        let relro = headers.iter().find(|h| h.p_type(LE) == elf::PT_GNU_RELRO);
        library.read_only = relro.map(|h| {
            let end = h.p_vaddr(LE).saturating_add(h.p_memsz(LE));
            down(h.p_vaddr(LE))..down(end).max(down(h.p_vaddr(LE)))
        });
        if library.read_only.as_ref().is_some_and(|pages| pages.end > library.len()) {
            return Err(OUTSIDE);
        }
        Ok(library)
    }

    /// Returns the bytes of memory that the library is mapped to.
    pub(crate) fn len(&self) -> u64 {
        self.segments.iter().map(|segment| segment.pages().end).max().unwrap_or(0)
    }

    /// Returns the contents of what can be written, for a library that is mapped at `base`: offsets
    /// in the mapping, and bytes.
    pub(crate) fn contents(&self, base: u64) -> Vec<(u64, Vec<u8>)> {
        let written = self.segments.iter().filter(|segment| segment.is_written());
        let mut all: Vec<_> = written.map(|s| (s.at, s.contents.clone())).collect();
        for relocation in &self.relocations {
            let value = match relocation.value {
                Value::Relative(offset) => base.wrapping_add(offset),
                Value::Absolute(value) => value,
            };
            let part = all.iter_mut().find_map(|(at, bytes)| {
                let from = usize::try_from(relocation.at.checked_sub(*at)?).ok()?;
                bytes.get_mut(from..from.checked_add(WORD as usize)?)
            });
            // `relocate` has checked that there is one.
            if let Some(part) = part {
                part.copy_from_slice(&value.to_le_bytes());
            }
        }
        all
    }

    fn relocate(
        &mut self,
        table: &[Rela64<Endian>],
        symbols: &SymbolTable<'_, Header>,
    ) -> Result<(), Error> {
        for rela in table {
            let (at, addend) = (rela.r_offset.get(LE), rela.r_addend.get(LE).cast_unsigned());
            let kind = rela.r_type(LE, false);
            let value = match kind {
                elf::R_X86_64_NONE => continue,
                elf::R_X86_64_RELATIVE => Value::Relative(addend),
                elf::R_X86_64_GLOB_DAT | elf::R_X86_64_JUMP_SLOT => symbol(rela, symbols, 0)?,
                elf::R_X86_64_64 => symbol(rela, symbols, addend)?,
                elf::R_X86_64_DTPMOD64
                | elf::R_X86_64_DTPOFF64
                | elf::R_X86_64_TPOFF64
                | elf::R_X86_64_TLSDESC => return Err(Error::ThreadLocal),
                other => return Err(Error::Relocation(other.0)),
            };
            let holds = |s: &Segment| {
                let end = at.checked_add(WORD);
                let room = s.at + s.contents.len() as u64;
                s.is_written() && at >= s.at && end.is_some_and(|end| end <= room)
            };
            if !self.segments.iter().any(holds) {
                return Err(Error::Damaged("it relocates what cannot be written"));
            }
            self.relocations.push(Relocation { at, value });
        }
        Ok(())
    }
}

/// Addresses and sizes of the tables in the dynamic segment.
#[derive(Default)]
struct Tables {
    relocations: (u64, u64),
    jumps: (u64, u64),
}

impl Tables {
    fn read(headers: Segments<'_>, data: &[u8]) -> Result<Tables, Error> {
        let dynamic = headers.iter().find_map(|h| h.dynamic(LE, data).transpose());
        let Some(Ok(dynamic)) = dynamic else {
            return Err(Error::Damaged("it has no dynamic segment"));
        };
        let mut tables = Tables::default();
        let (mut needed, mut strings) = (None, 0);
        for entry in dynamic {
            let value = entry.val(LE);
            match entry.d_tag(LE) {
                elf::DT_NULL => break,
                elf::DT_NEEDED => needed = needed.or(Some(value)),
                elf::DT_STRTAB => strings = value,
                elf::DT_RELA => tables.relocations.0 = value,
                elf::DT_RELASZ => tables.relocations.1 = value,
                elf::DT_JMPREL => tables.jumps.0 = value,
                elf::DT_PLTRELSZ => tables.jumps.1 = value,
                elf::DT_RELR | elf::DT_REL => {
                    return Err(Error::Damaged("its relocations are of another kind"));
                }
                _ => {}
            }
        }
        match needed {
            None => Ok(tables),
            Some(offset) => Err(Error::Needs(name(headers, data, strings.wrapping_add(offset)))),
        }
    }

    fn contents<'a>(
        &self,
        headers: Segments<'_>,
        data: &'a [u8],
        (at, len): (u64, u64),
    ) -> Result<Vec<Rela64<Endian>>, Error> {
        if len == 0 {
            return Ok(Vec::new());
        }
        let find = |h: &ProgramHeader64<Endian>| -> Option<&'a [u8]> {
            let loaded = h.p_type(LE) == elf::PT_LOAD;
            h.data_range(LE, data, at, len).ok().flatten().filter(|_| loaded)
        };
        let bytes = headers.iter().find_map(find).ok_or(OUTSIDE)?;
        let table = object::pod::slice_from_all_bytes::<Rela64<Endian>>(bytes);
        table.map(<[_]>::to_vec).map_err(|()| OUTSIDE)
    }
}

/// Returns the string at an address.
fn name(headers: Segments<'_>, data: &[u8], at: u64) -> String {
    let within = |h: &&ProgramHeader64<Endian>| {
        let end = h.p_vaddr(LE).saturating_add(h.p_filesz(LE));
        h.p_type(LE) == elf::PT_LOAD && (h.p_vaddr(LE)..end).contains(&at)
    };
    let bytes = headers.iter().find(within).and_then(|h| {
        let from = h.p_offset(LE).checked_add(at - h.p_vaddr(LE))?;
        StringTable::new(data, from, data.len() as u64).get(0).ok()
    });
    bytes.map_or_else(|| "another library".into(), |b| String::from_utf8_lossy(b).into_owned())
}

/// Returns the value of the symbol that a relocation names.
fn symbol(
    rela: &Rela64<Endian>,
    symbols: &SymbolTable<'_, Header>,
    addend: u64,
) -> Result<Value, Error> {
    let index = SymbolIndex(rela.r_sym(LE, false) as usize);
    let symbol = symbols.symbol(index).map_err(|_| Error::Damaged("a symbol is missing"))?;
    let (kind, value) = (symbol.st_type(), symbol.st_value(LE).wrapping_add(addend));
    match symbol.st_shndx(LE) {
        _ if kind == elf::STT_TLS => Err(Error::ThreadLocal),
        _ if kind == elf::STT_GNU_IFUNC => Err(Error::Relocation(elf::R_X86_64_IRELATIVE.0)),
        elf::SHN_UNDEF if symbol.st_bind() == elf::STB_WEAK || index.0 == 0 => {
            Ok(Value::Absolute(addend))
        }
        elf::SHN_UNDEF => {
            let name = symbols.symbol_name(LE, symbol).unwrap_or_default();
            Err(Error::Undefined(String::from_utf8_lossy(name).into_owned()))
        }
        elf::SHN_ABS => Ok(Value::Absolute(value)),
        _ => Ok(Value::Relative(value)),
    }
}

/// Returns the address of the function that a library begins with.
fn entry(symbols: &SymbolTable<'_, Header>) -> Result<u64, Error> {
    let is_entry = |symbol: &&elf::Sym64<Endian>| {
        symbol.st_shndx(LE) != elf::SHN_UNDEF
            && symbols.symbol_name(LE, symbol).is_ok_and(|name| name == ENTRY.as_bytes())
    };
    symbols.iter().find(is_entry).map(|symbol| symbol.st_value(LE)).ok_or(Error::NoEntry)
}

/// Returns the segments to be mapped, in the order of their addresses.
fn segments(headers: Segments<'_>, data: &[u8]) -> Result<Vec<Segment>, Error> {
    let mut all: Vec<Segment> = Vec::new();
    if headers.iter().any(|h| h.p_type(LE) == elf::PT_TLS && h.p_memsz(LE) != 0) {
        return Err(Error::ThreadLocal);
    }
    for h in headers.iter().filter(|h| h.p_type(LE) == elf::PT_LOAD) {
        let (at, memory) = (h.p_vaddr(LE), h.p_memsz(LE));
        let (offset, bytes) = (h.p_offset(LE), h.p_filesz(LE));
        let flags = h.p_flags(LE);
        let fits = at.checked_add(memory).is_some_and(|end| end <= MOST);
        let follows = all.last().is_none_or(|s| s.pages().end <= down(at));
        let written = flags.contains(elf::PF_W);
        if !fits || !follows || bytes > memory || at % PAGE != offset % PAGE {
            return Err(Error::Damaged("its segments do not fit"));
        }
        if !written && bytes != memory {
            return Err(Error::Damaged("a read-only segment is longer than its contents"));
        }
        let contents = h.data(LE, data).map_err(|()| CUT)?;
        let mut segment = Segment { at, memory, offset, bytes, flags, contents: Vec::new() };
        if written {
            segment.contents = contents.to_vec();
            segment.contents.resize((segment.of_file().end.max(at) - at) as usize, 0);
        }
        all.push(segment);
    }
    if all.is_empty() { Err(Error::Damaged("it has nothing to be mapped")) } else { Ok(all) }
}
