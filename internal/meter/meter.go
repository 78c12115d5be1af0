package meter

import (
	"fmt"
	"math"
)

// Config controls how a module is rewritten, and its limits. A limit of 0 means the default. The
// limits prevent a small module from costing the compiler much. Those on counts and sizes are far
// above the output of compilers.
type Config struct {
	// Init is the initial fuel. It bounds a start section, which runs before the host can set the
	// fuel.
	Init int64
	// Slice is the fuel up to the guest's first pause. The host sets the fuel up to each further
	// pause, see PauseModule. Default 40,000.
	Slice int64
	// Chunk is the number of bytes that one instruction fills or copies at most between two pauses.
	// Default 1 MiB.
	Chunk int32
	// Stack bounds the stack of the functions that call others, in bytes of their estimated frames.
	// Default 8 MiB.
	Stack int32
	// MaxFunctions bounds the functions that the module defines. Default 100,000.
	MaxFunctions uint32
	// MaxBody bounds the bytes of one function. Default 2 MiB.
	MaxBody uint32
	// MaxLocals bounds the parameters and locals of one function. Default 20,000.
	MaxLocals uint32
	// MaxValues bounds the values that the compiler holds for one function: its instructions
	// (memory accesses and calls count as eight), and the values that blocks, branches, loops and
	// calls pass, which take no bytes of the module. Each value costs the compiler some 600 bytes
	// and a microsecond. All functions together may have 64 times as many. Default 1 Mi.
	MaxValues uint32
	// MaxBlocks bounds the blocks and branches of one function. Four targets of a table count as
	// one; a loop counts as five and a pause in long code as one, because metering adds blocks.
	// The compiler needs time and memory in proportion to the square: two seconds and 200 MB for
	// the default. All functions together may take sixteen times that time. Default 12,000.
	MaxBlocks uint32
	// MaxTables bounds the tables. Default 16.
	MaxTables uint32
	// MaxTable bounds the entries of all tables of the module together, 8 bytes each. The initial
	// sizes may not exceed it, and each table grows at most to its share. Default 1 Mi.
	MaxTable uint32
}

// Module is a rewritten module.
type Module struct {
	// Code is the rewritten module. It shares no memory with the input.
	Code []byte
	// Fuel is the name of the exported mutable i64 global with the fuel up to the next pause. It is
	// negative when a pause is due.
	Fuel string
	// Rest is the name of the exported mutable i64 global with the fuel behind the next pause. The
	// host sets it whenever it sets Fuel. The sum of both is the remaining fuel. If the sum is
	// negative after a call, the guest ran out of fuel, even if the call returned.
	Rest string
	// Stack is the name of the exported mutable i32 global with the stack in use. The host sets it
	// to 0 before each call from outside. It exceeds StackLimit after a call that trapped for its
	// depth, and at no other time.
	Stack string
	// Slice is Config.Slice, or its default.
	Slice int64
	// Arm is the name of the exported function that receives the host's function for pauses, see
	// PauseModule. The host calls it before all others. The name is empty if the module has no
	// function.
	Arm string
	// Start is the name of the exported function that was the module's start function, or empty.
	// The host calls it once, after it has armed the instance: if it traps, the instance exists, so
	// the host can ask it for the reason and close it.
	Start string
	// Functions is the number of functions of the module, with the imported ones. Those that
	// metering adds have the indexes behind them.
	Functions int
	// Imports are the imports of the module.
	Imports []Import
	// StackLimit is Config.Stack, or its default.
	StackLimit int32
}

// Import is an import of a module.
type Import struct {
	Module, Name    string
	Kind            importKind
	Params, Results []byte // of a function: the types of its values, as in the module
}

// importKind is the kind of an import.
type importKind byte

// The kinds, by their numbers in a module.
const (
	ImportFunction importKind = iota
	importTable
	importMemory
	importGlobal
)

func (k importKind) String() string {
	return [...]string{"function", "table", "memory", "global"}[k]
}

// FeatureError reports the use of a proposal that is not enabled.
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

// malformedError reports a malformed module, or one that exceeds a limit.
type malformedError struct {
	Offset int // in the module, bytes
	Reason string
}

func (e *malformedError) Error() string {
	return fmt.Sprintf("malformed module: %s (offset %#x)", e.Reason, e.Offset)
}

// Rewrite returns the metered module. The error is a *FeatureError or a *MalformedError. Rewrite
// does not check types: the engine checks them when it compiles the result.
func Rewrite(module []byte, cfg Config) (*Module, error) {
	m, err := readModule(module, cfg.withDefaults())
	c := code{added: newAdditions(m)}
	// even after a fault in a later section: the first fault is reported
	if m.sections[secCode] != nil {
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
	if c.Slice <= 0 {
		c.Slice = 40_000
	}
	if c.Stack <= 0 {
		c.Stack = 8 << 20
	}
	if c.Chunk <= 0 {
		c.Chunk = 1 << 20
	}
	c.Stack = min(c.Stack, math.MaxInt32/2) // a further frame must not overflow
	set(&c.MaxFunctions, 100_000)
	set(&c.MaxBody, 2<<20)
	set(&c.MaxLocals, 20_000)
	set(&c.MaxValues, 1<<20)
	set(&c.MaxBlocks, 12_000)
	set(&c.MaxTables, 16)
	set(&c.MaxTable, 1<<20)
	return c
}
