//! An object's table of dynamic symbols, found by hash (`DT_GNU_HASH`, else `DT_HASH`), as the
//! generic and the GNU ABI lay it out.
#![allow(unsafe_code)]

use core::ffi::{CStr, c_char};
use core::ptr::with_exposed_provenance;

use libc::Elf64_Sym;

const DT_HASH: usize = 4;
const DT_STRTAB: usize = 5;
const DT_SYMTAB: usize = 6;
const DT_VERSYM: usize = 0x6fff_fff0;
const DT_GNU_HASH: usize = 0x6fff_fef5;
/// Limit of the pairs of a dynamic section that are read.
const MOST: usize = 128;

const STT_GNU_IFUNC: u8 = 10;
/// Bit of a symbol that only those find who ask for its version.
const HIDDEN: u16 = 0x8000;

/// Addresses of an object's tables.
#[derive(Debug)]
pub struct Table {
    base: usize,
    strings: usize,
    symbols: usize,
    /// 0: symbols have no versions.
    versions: usize,
    gnu: usize,
    plain: usize,
}

/// Reads a value of an object's tables.
///
/// # Safety
/// The object is loaded, and has this value there.
unsafe fn read<T: Copy>(at: usize, index: usize) -> T {
    // SAFETY: the caller's.
    unsafe { with_exposed_provenance::<T>(at).add(index).read_unaligned() }
}

impl Table {
    /// Returns the tables of the object that is loaded at `base` and has this dynamic section;
    /// `None` if it has no symbols.
    pub fn of(base: usize, dynamic: usize) -> Option<Table> {
        let mut table = Table { base, strings: 0, symbols: 0, versions: 0, gnu: 0, plain: 0 };
        // The dynamic section ends with a pair of zeroes.
        for i in (0..MOST).take_while(|_| dynamic != 0) {
            // SAFETY: the loader's array of pairs, read up to the one that ends it.
            let [tag, value] = unsafe { read::<[usize; 2]>(dynamic, i) };
            // glibc's loader replaces offsets by addresses, if it may write there.
            let at = if value < base { base + value } else { value };
            match tag {
                0 => break,
                DT_STRTAB => table.strings = at,
                DT_SYMTAB => table.symbols = at,
                DT_VERSYM => table.versions = at,
                DT_GNU_HASH => table.gnu = at,
                DT_HASH => table.plain = at,
                _ => {}
            }
        }
        let has = [table.strings, table.symbols, table.gnu | table.plain];
        (!has.contains(&0)).then_some(table)
    }

    /// Returns the address of the symbol's default version.
    pub fn find(&self, name: &CStr) -> Option<usize> {
        let index = if self.gnu == 0 { self.by_hash(name)? } else { self.by_gnu_hash(name)? };
        // SAFETY: a symbol of the table.
        let symbol = unsafe { read::<Elf64_Sym>(self.symbols, index) };
        let at = self.base.wrapping_add(symbol.st_value as usize);
        if symbol.st_info & 15 == STT_GNU_IFUNC {
            type Choose = extern "C" fn() -> usize;
            // SAFETY: a function of this kind returns the function to call.
            return Some(unsafe { core::mem::transmute::<usize, Choose>(at) }());
        }
        Some(at)
    }

    /// Returns whether the symbol of this index is the default one of the name, and defined.
    fn is(&self, index: usize, name: &CStr) -> bool {
        // SAFETY: the index is one of the hash table; a symbol's name is a string of its table.
        unsafe {
            let symbol = read::<Elf64_Sym>(self.symbols, index);
            let text = with_exposed_provenance::<c_char>(self.strings + symbol.st_name as usize);
            symbol.st_shndx != 0
                && (self.versions == 0 || read::<u16>(self.versions, index) & HIDDEN == 0)
                && CStr::from_ptr(text) == name
        }
    }

    fn by_gnu_hash(&self, name: &CStr) -> Option<usize> {
        let step = |hash: u32, byte: &u8| hash.wrapping_mul(33).wrapping_add((*byte).into());
        let hash = name.to_bytes().iter().fold(5381, step);
        // SAFETY: four words: buckets, the first symbol that is hashed, words of the filter, a
        // shift. Behind them the filter, the buckets, and a word for each symbol, whose lowest bit
        // is set in the last one of a bucket.
        unsafe {
            let [buckets, first, filter, _] = read::<[u32; 4]>(self.gnu, 0);
            let bucket_of = self.gnu + 16 + 8 * filter as usize;
            let chain = bucket_of + 4 * buckets as usize;
            let mut index = read::<u32>(bucket_of, (hash % buckets.max(1)) as usize);
            while index >= first && index != 0 {
                let word = read::<u32>(chain, (index - first) as usize);
                if word | 1 == hash | 1 && self.is(index as usize, name) {
                    return Some(index as usize);
                }
                index = if word & 1 == 0 { index + 1 } else { 0 };
            }
        }
        None
    }

    fn by_hash(&self, name: &CStr) -> Option<usize> {
        let hash = name.to_bytes().iter().fold(0u32, |hash, byte| {
            let hash = (hash << 4).wrapping_add((*byte).into());
            let high = hash & 0xf000_0000;
            (hash ^ high >> 24) & !high
        });
        // SAFETY: two words, the numbers of buckets and of symbols. Behind them the buckets, and
        // for each symbol the index of the next one in its bucket.
        unsafe {
            let [buckets, symbols] = read::<[u32; 2]>(self.plain, 0);
            let next = self.plain + 8 + 4 * buckets as usize;
            let mut index = read::<u32>(self.plain + 8, (hash % buckets.max(1)) as usize);
            for _ in 0..symbols {
                if index == 0 || self.is(index as usize, name) {
                    break;
                }
                index = read::<u32>(next, index as usize);
            }
            (index != 0).then_some(index as usize)
        }
    }
}
