//! The tile unit: whether it may be used, its configuration, and the innermost loop of a product.

use std::arch::asm;
use std::arch::x86_64::__cpuid_count;
use std::marker::PhantomData;
use std::sync::OnceLock;

/// The number of rows of a tile, and of elements of 32 bits in each row.
pub(super) const TILE: usize = 16;
/// The rows and columns of the part of the result that one call of [`sum`] computes: two by two tiles.
pub(super) const SIDE: usize = 2 * TILE;
/// Elements of the inner dimension in a tile: two for each of 16 elements of 32 bits.
pub(super) const STEP: usize = 2 * TILE;
/// Elements of a packed panel for one step: two tiles.
pub(super) const PANEL_STEP: usize = SIDE * STEP;

/// Whether this CPU has the tile unit and the instructions that packing uses, and the system permits their use.
///
/// The first call asks Linux for permission, which holds for all present and future threads of the process.
pub(crate) fn available() -> bool {
    static AVAILABLE: OnceLock<bool> = OnceLock::new();
    *AVAILABLE.get_or_init(|| vectors() && tiles() && permitted())
}

fn vectors() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512bf16")
}

/// The standard library does not detect these features yet.
fn tiles() -> bool {
    const BF16: u32 = 1 << 22;
    const TILES: u32 = 1 << 24;
    // Leaf 7 lists features, leaf 0x1d the tiles' sizes, of which there is only one so far. A processor with AVX-512 has
    // leaf 7; the others answer with zeros where they lack 0x1d.
    let features = __cpuid_count(7, 0).edx;
    if features & (BF16 | TILES) != BF16 | TILES {
        return false;
    }
    let sizes = __cpuid_count(0x1d, 1);
    sizes.ebx == (8 << 16 | 64) && sizes.ecx & 0xffff == 16
}

/// Linux saves the tiles of a thread (8 KiB at each switch) only after its process has asked for it.
fn permitted() -> bool {
    const ARCH_REQ_XCOMP_PERM: libc::c_long = 0x1023;
    const TILE_DATA: libc::c_long = 18;
    // SAFETY: the call takes two numbers and touches no memory of ours.
    unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, TILE_DATA) == 0 }
}

/// The calling thread's tiles are configured while this value lives. Releasing them spares the system from saving them.
pub(super) struct Tiles {
    /// Tiles belong to a thread, so the value must not leave it.
    thread: PhantomData<*const ()>,
}

#[repr(C, align(64))]
struct Configuration {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

/// All eight tiles have the full size; the edges of matrices are padded with zeros instead.
static CONFIGURATION: Configuration = Configuration {
    palette: 1,
    start_row: 0,
    reserved: [0; 14],
    row_bytes: [64, 64, 64, 64, 64, 64, 64, 64, 0, 0, 0, 0, 0, 0, 0, 0],
    rows: [16, 16, 16, 16, 16, 16, 16, 16, 0, 0, 0, 0, 0, 0, 0, 0],
};

impl Tiles {
    /// # Safety
    /// [`available`] has answered yes.
    pub unsafe fn configure() -> Self {
        // SAFETY: the CPU has the instruction, which reads the 64 bytes of a valid configuration.
        unsafe {
            asm!("ldtilecfg [{}]", in(reg) &raw const CONFIGURATION, options(nostack, readonly, preserves_flags));
        };
        Tiles { thread: PhantomData }
    }
}

impl Drop for Tiles {
    fn drop(&mut self) {
        // SAFETY: the CPU has the instruction, as it had `ldtilecfg`; nothing uses the tiles any more.
        unsafe { asm!("tilerelease", options(nomem, nostack, preserves_flags)) };
    }
}

/// A square of 32 x 32 sums in memory: its first row, and the stride of rows in bytes. A step of 0 repeats a row.
#[derive(Clone, Copy)]
pub(super) struct Square {
    pub ptr: *mut f32,
    pub bytes: isize,
}

/// `to = from + a · b`, where `a` is a panel of 32 rows and `b` one of 32 columns, `steps` long, as [`super::pack`] writes
/// them. The four tiles of sums stay in registers, and each tile of an operand that is loaded is used twice.
///
/// # Safety
/// `tiles` is the calling thread's; `a` and `b` have [`PANEL_STEP`] elements for each step; `from` can be read and `to` be
/// written.
pub(super) unsafe fn sum(_tiles: &Tiles, steps: usize, a: *const u16, b: *const u16, from: Square, to: Square) {
    // SAFETY: the caller's promise covers all addresses. Nothing but this function uses tile registers, and they carry
    // nothing from one call to the next, so that they are all free here.
    unsafe {
        asm!(
            // The sums so far.
            "lea {row}, [{from_bytes} * 8]",
            "lea {row}, [{from} + {row} * 2]",
            "tileloadd tmm0, [{from} + {from_bytes}]",
            "tileloadd tmm1, [{from} + {from_bytes} + 64]",
            "tileloadd tmm2, [{row} + {from_bytes}]",
            "tileloadd tmm3, [{row} + {from_bytes} + 64]",
            "test {steps}, {steps}",
            "jz 3f",
            "2:",
            "tileloadd tmm4, [{a} + {line}]",
            "tileloadd tmm6, [{b} + {line}]",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tileloadd tmm7, [{b} + {line} + 1024]",
            "tdpbf16ps tmm1, tmm4, tmm7",
            "tileloadd tmm5, [{a} + {line} + 1024]",
            "tdpbf16ps tmm2, tmm5, tmm6",
            "tdpbf16ps tmm3, tmm5, tmm7",
            "add {a}, 2048",
            "add {b}, 2048",
            "dec {steps}",
            "jnz 2b",
            "3:",
            "lea {row}, [{to_bytes} * 8]",
            "lea {row}, [{to} + {row} * 2]",
            "tilestored [{to} + {to_bytes}], tmm0",
            "tilestored [{to} + {to_bytes} + 64], tmm1",
            "tilestored [{row} + {to_bytes}], tmm2",
            "tilestored [{row} + {to_bytes} + 64], tmm3",
            a = inout(reg) a => _,
            b = inout(reg) b => _,
            steps = inout(reg) steps => _,
            line = in(reg) 2 * STEP,
            from = in(reg) from.ptr,
            from_bytes = in(reg) from.bytes,
            to = in(reg) to.ptr,
            to_bytes = in(reg) to.bytes,
            row = out(reg) _,
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(nostack),
        );
    }
}
