// Package meter rewrites a WebAssembly module so that its executed instructions and its stack are
// bounded. Without that, an engine can stop compiled code from outside only at a higher price.
//
// # Added parts
//
// Metering adds three mutable globals behind those of the module. It exports them under names that
// the module does not use: Fuel, which pays the charges up to the next pause, Rest, the fuel behind
// the pause, and Stack, the stack in use. The remaining fuel is the sum of Fuel and Rest.
//
// A charge only subtracts from Fuel. A pause tests the sum, and traps if it is negative. So a guest
// executes at most the weight between two pauses without paying for it, about a microsecond. The
// sum stays negative. A call that returns before the next pause with a negative sum counts as out
// of fuel too: the host drops its effects. So a call succeeds if and only if it has all the fuel
// that it uses, however it is divided into slices. A call that is too deep leaves Stack above its
// limit and traps. So the host can distinguish these two traps from all others.
//
// The unit of fuel is a simple instruction (get, add, load, branch). Slower instructions weigh more
// (division 8, a call 6, most of SIMD 3, each turn of a loop 2 more); block, end and nop weigh
// nothing. Fuel is not a time: a loop executes some 5 units per nanosecond, code that waits for
// memory less than one. An instruction with a size is charged for it at run time, and the charge
// pauses: it is paid before it is executed, however large it is. It costs 1 for each 2 bytes of
// memory that are filled or copied, 16,384 for each page that memory grows by (the host grows it
// without a copy), 2 for each entry of a table. The host charges for its own work: host functions
// may take from Fuel while they are called.
//
// # Places of charges
//
// A charge stands at the head of code that is executed as a whole, and pays for it before it runs.
// Functions and loops always begin with a charge. Code after a branch has a charge of its own,
// unless it is cheap: then the charge before it pays for both. Such a charge at most doubles, or
// grows by 32. So an instruction is charged before it is executed, and the excess is less than the
// executed weight plus 32 for each charge. There is one exception: a loop that begins with a
// br_table, as in all functions of Go's compiler, is charged at the ends of the table's target
// blocks. The instructions before the table, 16 at most, run before they are charged. The caller of
// a function pays for its entry.
//
// A loop without calls, cold ones aside, keeps the fuel in a local, and stores it when it is left.
// If such a loop traps for another reason, Fuel still has its value from before the loop.
//
// # The stack
//
// Metering chooses functions and types, as few as it can, so that each cycle of calls contains a
// chosen function or a call by a chosen type, see cycles.go. Functions that call by a chosen type
// count as chosen from here on.
//
// A tracked function adds an estimate of its frame to Stack at its entry, and subtracts it at its
// end. Tracked are the chosen functions, those that call the host, and those whose frame, with the
// frames below, exceeds 2 KiB. A tracked function counts the frames of the others that it calls as
// its own: the largest sum of frames up to the next tracked ones. Functions without calls are not
// counted. See graph.go. The host may begin a new delta within a call and set the stack to 0, so a
// tracked function stores its sum again behind a call of the host.
//
// A call that an unreachable follows is cold, such as that of a function that panics. A function
// that is added checks fuel and stack before it, and counts the frames that were not counted, so
// that the entries of functions that only may panic need no check.
//
// # Pauses
//
// A guest pauses after each slice of fuel, see pause.go: the engine leaves compiled code, Go can
// stop the guest for a moment, and the host reads its clock and decides when the next pause is due.
// Charges at loop heads and at the entries of chosen functions test the sign of Fuel. So do chosen
// functions before they return, and some charges in long code, see charges.go. After a pause at its
// head or entry, a loop or a chosen function begins anew: the compiler generates slower code for
// values that are used behind a call. A dispatch loop of Go's compiler, which is charged at the
// ends of its blocks, pauses at its jumps back. Large fills and copies are done in chunks, see
// pause.go.
//
// Between two pauses a guest executes no more than the slice, some 7,000 units of fuel, and one
// table instruction or memory.init. A memory.init copies at most the data of the module.
//
// # References
//
// ref.func becomes a table.get of an added table, which contains all functions that the code refers
// to: the engine allocates memory for each ref.func. The start function is exported instead: the
// host calls it when the guest can pause.
//
// # Why type checks can follow later
//
// Metering reads the module whole: it checks each section, index, length, number and immediate, and
// the nesting of blocks. It does not check types: the engine validates the result, which is valid
// if and only if the module was:
//
//   - Inserted code takes nothing from the operand stack that it has not put there, and leaves
//     nothing. Before an instruction with a size stands a local.tee of an i32, which has the same
//     demand as the instruction. This holds in unreachable code too.
//   - The body of a tracked function becomes a block with the function's results, and its returns
//     become branches to the end of the block. For the body, the block is the function; labels
//     beyond it were refused.
//   - Added globals, locals, types, functions, the table and its elements come last, so that no
//     index changes. Each index of the module was checked against the module's own parts. So no
//     instruction, constant, segment or export can refer to an added part.
//   - Encodings that two readers could read differently are refused: LEB128 numbers are bounded,
//     reserved bytes are one byte, and the opcodes of SIMD, of which the engine uses one byte, must
//     be in their shortest form.
//
// Custom sections are dropped, because offsets of debug information would be wrong. Only the names
// of functions are kept, unless one of them is very long: each line of a trace repeats one.
package meter
