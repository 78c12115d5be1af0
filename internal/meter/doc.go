// Package meter rewrites a WebAssembly module so that the instructions that it executes and the
// stack that it uses are bounded. An engine that runs compiled code cannot stop it from outside but
// at a price that is higher than all this.
//
// # What is added
//
// Two or three mutable globals, behind those of the module, and exported under names that it does
// not use: Fuel, from which charges are taken, and Stack, the stack in use. A charge that cannot be
// paid leaves Fuel below zero and traps; a call that goes too deep leaves Stack above its limit and
// traps. So the host can tell the three kinds of traps apart.
//
// The unit of fuel is a simple instruction (get, add, load, branch); what takes longer weighs more
// (division 8, a call 6, most of SIMD 3, each turn of a loop 2 more), and block, end and nop
// nothing. It is not a time: code in a loop executes some 5 of them per nanosecond, code that waits
// for memory fewer than one. An instruction that takes a size is charged for it at run time before
// it is executed: 1 for each 2 bytes of memory that are filled or copied, 16,384 for each page that
// memory grows by (the host grows it without a copy), 2 for each entry of a table. What the host
// does is charged by the host, who may take from Fuel while it is called.
//
// # What is charged where
//
// A charge stands at the head of code that is executed as a whole, and pays for it before it runs.
// The first in a function and in a loop are always there. Code after a branch has a charge of its
// own, unless it is cheap: then the charge before it pays for both, at most double what it pays for
// certain, or 16 more. So an instruction is paid for before it is executed, and what is paid but
// not executed is less than what is, and 16 for each charge. One exception: a loop that begins with
// a br_table, as all functions of Go's compiler, is charged at the ends of the blocks where the
// table leads. What stands before the table, 16 at most, runs before it is paid. Nothing else runs
// without fuel. The entry of a function is paid by its caller.
//
// In a loop without calls the fuel is in a local, and is put back where the loop is left. If it
// traps there for a reason of its own, Fuel is what it was before the loop.
//
// # The stack
//
// A function that calls others adds an estimate of its frame to Stack when it is entered and keeps
// the sum in a local; before a call it stores that, so nothing is to be done after the call. A
// function that calls none is not counted.
//
// # Pauses
//
// With a Slice, a guest pauses when it has burnt so much, see pause.go: the engine leaves compiled
// code, Go can stop the guest for a moment, and the host looks at its clock and says when the next
// pause is due. Charges at loop heads and function entries compare the fuel with a third global,
// Mark, instead of 0, and so do some in long code and behind calls, see charges.go. A loop of Go's
// that is charged at the ends of its blocks pauses where it jumps back. Much memory is filled or
// copied in chunks, see bulk.go.
//
// Between two pauses is no more than the slice, some 3,000 fuel, and a table instruction or
// memory.init; the latter as much as the module has data.
//
// # References
//
// ref.func becomes table.get of a table that has all functions which the code refers to: the engine
// allocates for each ref.func. The start function is exported instead, for the host to call when
// the guest can pause.
//
// # Why the types need not be checked first
//
// The module is read whole: each section, index, length, number and immediate is checked, and so is
// the nesting of blocks. Types are not: the engine validates what is returned, and that is valid if
// and only if the module was:
//
//   - What is put in takes nothing from the operand stack that it has not put there, and leaves
//     nothing. Before an instruction that takes a size stands a local.tee of an i32, which demands
//     what the instruction demands. This is so in unreachable code too.
//   - Added globals, locals, types, functions, the table and its elements come last, so that no
//     index changes; each index in the module was checked against what it had. So no instruction,
//     constant, segment or export can name them.
//   - Each body is wrapped in a block with the function's results, and that in one whose end is the
//     trap. Seen from the body, the former is what the function was, and labels beyond were
//     refused.
//   - Nothing that two readers could read differently passes: LEB128 numbers are bounded, reserved
//     bytes are one byte, and the opcodes of SIMD must be in their shortest form, of which the
//     engine relies on one byte.
//
// Custom sections but the names of functions are dropped: offsets of debug information would be
// wrong. So are the names if one of them is very long, since each line of a trace repeats one.
package meter
