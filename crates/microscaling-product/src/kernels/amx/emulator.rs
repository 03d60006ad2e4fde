//! Emulates the instructions of AMX-BF16 on processors without them. Such a processor raises a signal, and a handler does the
//! work of the instruction as Intel's Software Developer's Manual, volume 2, describes it. So the kernel is tested on every
//! processor with AVX-512.

use core::cell::UnsafeCell;

use libc::{c_int, c_void, siginfo_t, ucontext_t};

use super::Configuration;
use crate::panels::halves;

const TILES: usize = 8;
const ROWS: usize = 16;
const WORDS: usize = 16;

type TileRegister = [[u32; WORDS]; ROWS];

struct State {
    configured: bool,
    tiles: [TileRegister; TILES],
}

thread_local! {
    static STATE: UnsafeCell<State> = const {
        UnsafeCell::new(State {
            configured: false,
            tiles: [[[0; WORDS]; ROWS]; TILES],
        })
    };
}

/// Has the instructions executed from now on; whether that is possible.
pub(super) fn install() -> bool {
    if !std::arch::is_x86_feature_detected!("avx512f") {
        return false;
    }
    let handler: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) = handle;
    // SAFETY: an action of zeros is a sound one, and the handler is one as its flags say.
    unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = handler as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER;
        libc::sigaction(libc::SIGILL, &action, core::ptr::null_mut()) == 0
    }
}

/// Whether this thread has tiles that were not released; not known where the processor itself has them.
pub(super) fn is_configured() -> bool {
    // SAFETY: nobody else has this thread's state but the handler, which is not running.
    STATE.with(|state| unsafe { (*state.get()).configured })
}

extern "C" fn handle(_: c_int, _: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the system gives the context of the instruction at fault; the state is this thread's, and executing an instruction
    // raises no signal.
    unsafe {
        let registers = &mut (*context.cast::<ucontext_t>()).uc_mcontext.gregs;
        let code = registers[libc::REG_RIP as usize] as *const u8;
        let length = STATE.with(|state| execute(code, registers, &mut *state.get()));
        match length {
            Some(length) => registers[libc::REG_RIP as usize] += length as i64,
            // Another instruction: the signal kills the process when it comes again.
            None => {
                libc::signal(libc::SIGILL, libc::SIG_DFL);
            }
        }
    }
}

/// The general registers by their numbers in instructions.
const REGISTERS: [c_int; 16] = [
    libc::REG_RAX,
    libc::REG_RCX,
    libc::REG_RDX,
    libc::REG_RBX,
    libc::REG_RSP,
    libc::REG_RBP,
    libc::REG_RSI,
    libc::REG_RDI,
    libc::REG_R8,
    libc::REG_R9,
    libc::REG_R10,
    libc::REG_R11,
    libc::REG_R12,
    libc::REG_R13,
    libc::REG_R14,
    libc::REG_R15,
];

/// Executes one instruction; its length, `None` if it is none of AMX-BF16, or not allowed.
///
/// # Safety
/// `code` must be the instruction at which the processor stopped with these registers.
unsafe fn execute(code: *const u8, registers: &[i64; 23], state: &mut State) -> Option<usize> {
    // SAFETY: an instruction in memory may be read, and so may the memory that it reads and writes, as its author has promised.
    unsafe {
        let byte = |i: usize| *code.add(i);
        // A VEX prefix of three bytes, the map 0F38, W 0, L 0.
        if byte(0) != 0xc4 || byte(1) & 0x1f != 2 || byte(2) & 0x84 != 0 {
            return None;
        }
        // Bits of the prefix, the fourth ones of registers' numbers, are inverted there.
        let extended = |bit: u8, low: u8| usize::from(((!byte(1) >> bit) & 1) << 3 | low & 7);
        let (opcode, modrm) = (byte(3), byte(4));
        let tile = extended(7, modrm >> 3);
        let prefix = byte(2) & 3;
        let register = |number: usize| registers[REGISTERS[number] as usize] as usize;
        if modrm >> 6 == 3 {
            let second = extended(5, modrm);
            let third = usize::from((!byte(2) >> 3) & 15);
            match (opcode, prefix) {
                (0x49, 0) if modrm == 0xc0 => state.configured = false,
                (0x49, 3) if state.configured => state.tiles[tile] = [[0; WORDS]; ROWS],
                (0x5c, 2) if state.configured => {
                    let (lhs, rhs) = (state.tiles[second], state.tiles[third]);
                    add_products(&mut state.tiles[tile], &lhs, &rhs);
                }
                _ => return None,
            }
            return Some(5);
        }
        // A base register, perhaps an index, and a displacement.
        let (mut at, mut step, mut length) = (register(extended(5, modrm)), 0, 5);
        if modrm & 7 == 4 {
            let sib = byte(5);
            length += 1;
            let index = extended(6, sib >> 3);
            at = register(extended(5, sib));
            if index != 4 {
                step = register(index) << (sib >> 6);
            }
            if modrm >> 6 == 0 && sib & 7 == 5 {
                return None;
            }
        } else if modrm >> 6 == 0 && modrm & 7 == 5 {
            return None;
        }
        match modrm >> 6 {
            0 => {}
            1 => {
                at = at.wrapping_add_signed(byte(length) as i8 as isize);
                length += 1;
            }
            _ => {
                let displacement = code.add(length).cast::<i32>().read_unaligned();
                at = at.wrapping_add_signed(displacement as isize);
                length += 4;
            }
        }
        let row = |i: usize| at.wrapping_add(i.wrapping_mul(step)) as *mut [u32; WORDS];
        match (opcode, prefix) {
            (0x49, 0) => configure(state, &*(at.wrapping_add(step) as *const Configuration))?,
            (0x4b, 3) if state.configured => {
                for (i, words) in state.tiles[tile].iter_mut().enumerate() {
                    *words = row(i).read_unaligned();
                }
            }
            (0x4b, 2) if state.configured => {
                for (i, words) in state.tiles[tile].iter().enumerate() {
                    row(i).write_unaligned(*words);
                }
            }
            _ => return None,
        }
        Some(length)
    }
}

/// `ldtilecfg`, of no other tiles than the kernel's.
fn configure(state: &mut State, configuration: &Configuration) -> Option<()> {
    let sound = configuration.palette == 1
        && configuration.start_row == 0
        && configuration.reserved == [0; 14]
        && configuration.row_bytes[..TILES] == [64; TILES]
        && configuration.row_bytes[TILES..] == [0; 8]
        && configuration.rows[..TILES] == [16; TILES]
        && configuration.rows[TILES..] == [0; 8];
    state.configured = sound;
    state.tiles = [[[0; WORDS]; ROWS]; TILES];
    sound.then_some(())
}

/// `tdpbf16ps`.
fn add_products(sums: &mut TileRegister, lhs: &TileRegister, rhs: &TileRegister) {
    for (sums, lhs) in sums.iter_mut().zip(lhs) {
        for (n, sum) in sums.iter_mut().enumerate() {
            let mut products = [0.0_f32; 2];
            for (lhs, rhs) in lhs.iter().zip(rhs) {
                let pairs = halves(*lhs).into_iter().zip(halves(rhs[n]));
                for (product, (a, b)) in products.iter_mut().zip(pairs) {
                    *product = flushed(flushed(a).mul_add(flushed(b), *product));
                }
            }
            let product = flushed(products[0] + products[1]);
            *sum = flushed(flushed(f32::from_bits(*sum)) + product).to_bits();
        }
    }
}

/// Zero of the same sign instead of a subnormal.
fn flushed(x: f32) -> f32 {
    if x.is_subnormal() {
        0.0_f32.copysign(x)
    } else {
        x
    }
}
