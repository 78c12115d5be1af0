package meter

import (
	"fmt"
	"math"
)

// Config says how a module is rewritten and what of it is refused. A limit of 0 is its default. The
// limits keep a small module from costing the compiler much; those on counts and sizes are far
// above what compilers emit.
type Config struct {
	// Init is what the fuel counter starts with, so that a start section is bounded before the host
	// can set the counter.
	Init int64
	// Slice is the fuel that the guest has until its first pause; what it has until the next one
	// the host says, see PauseModule. 0: the guest never pauses.
	Slice int64
	// Chunk is how many bytes one instruction fills or copies at most between two pauses. Default 1
	// MiB.
	Chunk int32
	// Stack is the most stack that the functions that call others may hold at once, in bytes of
	// their frames as estimated. Default 8 MiB.
	Stack int32
	// MaxFunctions bounds the functions that the module defines. Default 100,000.
	MaxFunctions uint32
	// MaxBody bounds the bytes of one function. Default 2 MiB.
	MaxBody uint32
	// MaxLocals bounds the parameters and locals of one function. Default 20,000.
	MaxLocals uint32
	// MaxValues bounds what the compiler has to hold of one function: its instructions, those that
	// access memory and calls counted as eight, and the values that blocks, branches, loops and
	// calls pass, which take no bytes of the module. Each takes the compiler some 600 bytes and a
	// microsecond. Default 1 Mi; all functions together may have 64 times as many.
	MaxValues uint32
	// MaxBlocks bounds the blocks and branches of one function, four targets of a table counted as
	// one, a loop as five and a pause behind a call as one: metering adds them. The compiler takes
	// time and memory in proportion to their square, two seconds and 200 MB for so many; all
	// functions together may take sixteen times that time. Default 12,000.
	MaxBlocks uint32
	// MaxTables bounds the tables. Default 16.
	MaxTables uint32
	// MaxTable bounds the entries of all tables that the module defines together, 8 bytes each:
	// what they start with may not be above it, and each grows to its share at most. Default 1 Mi.
	MaxTable uint32
}

// Module is a rewritten module.
type Module struct {
	// Code is the module. It shares no memory with what was rewritten.
	Code []byte
	// Fuel is the name of the exported mutable i64 global that holds the fuel that is left. It is
	// negative once a charge could not be paid, and then every call traps until the host sets it
	// anew.
	Fuel string
	// Stack is the name of the exported mutable i32 global that holds the stack in use. The host
	// sets it to 0 before each call from outside. It is above StackLimit after a call that trapped
	// for its depth, and at no other time.
	Stack string
	// Mark is the name of the exported mutable i64 global that says below how much fuel the guest
	// pauses. The host sets it whenever it sets Fuel. It is never negative. It is empty if there is
	// no Slice.
	Mark string
	// Slice is the Config's.
	Slice int64
	// Arm is the name of the exported function that takes the function which pauses call, see
	// PauseModule. The host calls it before all others. It is empty if there is no Slice, or no
	// function.
	Arm string
	// Start is the name of the exported function that was the module's start function. It is empty
	// if there is none. The host calls it once, when it has armed the instance: a guest that traps
	// there is an instance, which can be asked for the reason and closed.
	Start string
	// Imports are what the module imports.
	Imports []Import
	// StackLimit is the Config's Stack, or its default.
	StackLimit int32
}

// Import is something that a module imports.
type Import struct {
	Module, Name    string
	Kind            ImportKind
	Params, Results []byte // of a function: the types of its values, as in the module
}

// ImportKind is what is imported.
type ImportKind byte

// The kinds, by their numbers in a module.
const (
	ImportFunction ImportKind = iota
	ImportTable
	ImportMemory
	ImportGlobal
)

func (k ImportKind) String() string {
	return [...]string{"function", "table", "memory", "global"}[k]
}

// FeatureError is the use of a proposal that is not enabled.
type FeatureError struct {
	Feature  string // name of the proposal, as in github.com/WebAssembly/proposals
	Function int    // index of the function, or -1
	Offset   int    // in the module, bytes
}

func (e *FeatureError) Error() string {
	where := ""
	if e.Function >= 0 {
		where = fmt.Sprintf(" in function %d", e.Function)
	}
	return fmt.Sprintf("it uses the WebAssembly feature %s%s (offset %#x), which is not enabled: build it for WebAssembly 2.0", e.Feature, where, e.Offset)
}

// MalformedError is a fault of a module, or something that is beyond a limit.
type MalformedError struct {
	Offset int // in the module, bytes
	Reason string
}

func (e *MalformedError) Error() string {
	return fmt.Sprintf("malformed module: %s (offset %#x)", e.Reason, e.Offset)
}

// Rewrite returns the module with charges put in. The error is a *FeatureError or a
// *MalformedError. The module's types are not checked: compile what is returned.
func Rewrite(module []byte, cfg Config) (*Module, error) {
	m, err := readModule(module, cfg.withDefaults())
	c := code{added: newAdditions(m)}
	if m.sections[secCode] != nil { // also if there is a fault behind it: the first one is reported
		out, first := c.rewrite(&m.code)
		if first != nil {
			return nil, first
		}
		m.sections[secCode] = out
	}
	if err != nil {
		return nil, err
	}
	return c.added.emit(), nil
}

func (c Config) withDefaults() Config {
	set := func(v *uint32, to uint32) {
		if *v == 0 {
			*v = to
		}
	}
	if c.Stack <= 0 {
		c.Stack = 8 << 20
	}
	if c.Chunk <= 0 {
		c.Chunk = 1 << 20
	}
	c.Stack = min(c.Stack, math.MaxInt32/2) // one frame above it must not wrap
	set(&c.MaxFunctions, 100_000)
	set(&c.MaxBody, 2<<20)
	set(&c.MaxLocals, 20_000)
	set(&c.MaxValues, 1<<20)
	set(&c.MaxBlocks, 12_000)
	set(&c.MaxTables, 16)
	set(&c.MaxTable, 1<<20)
	return c
}
