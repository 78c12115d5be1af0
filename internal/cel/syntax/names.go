package syntax

import (
	"strings"

	"github.com/google/cel-go/common/ast"
)

// The names that have a value in an evaluation, beside [VarEvent]. [VarInput] is the first argument
// of our functions; it cannot be written in an expression.
const (
	VarObject    = "object"
	VarOldObject = "oldObject"
	VarOp        = "op"
	VarSource    = "source"
	VarCluster   = "cluster"
	VarNow       = "now"
	VarSince     = "since"
	VarLate      = "late"
	VarRepeat    = "repeat"

	VarSuppressed = "suppressed"
	VarObjects    = "objects"
	VarEvents     = "events"

	VarInput = "@input"
)

// The variables of an [cel.EventProgram], in place of those of other expressions. `event` in a
// downstream route has another type, see package typeset.
const (
	VarEvent   = "event"
	VarSecrets = "secrets"
)

// Our functions come in pairs: the written one is only declared, and package check replaces it by
// the one with an @, whose first argument is [VarInput] and whose source and index are separate
// arguments.
const (
	FuncChanged = "changed"
	FuncLookup  = "lookup"
	// FuncLookupMax is lookup with three arguments. It gets another name before types are checked,
	// because two arguments of lookup are three with the added type.
	FuncLookupMax = FuncLookup + Prefix + "max"
	FuncCount     = "count"
	FuncGet       = "get"
	FuncList      = "list"

	FuncSHA256     = "sha256"
	FuncDiff       = "diff"
	FuncManagers   = "managers"
	FuncController = "controller"

	Prefix = "@" // starts names that cannot be written in an expression
)

// FuncEvent makes the event of an emit.
const FuncEvent = "event"

// HasType reports whether a call of a function that finds objects has their type as its first
// argument.
func HasType(function string, args []ast.Expr) bool {
	n := Arity(function)
	return n > 0 && len(args) == n+1 && args[0].Kind() == ast.IdentKind && strings.HasPrefix(args[0].AsIdent(), Prefix)
}

// Arity returns the number of arguments of a function that finds objects; -1 for other functions.
func Arity(function string) int {
	switch function {
	case FuncLookup:
		return 2
	case FuncGet, FuncLookupMax:
		return 3
	case FuncList:
		return 1
	}
	return -1
}

// NameOf returns the name of our function as written in an expression.
func NameOf(function string) string {
	return strings.TrimSuffix(strings.TrimPrefix(function, Prefix), strings.TrimPrefix(FuncLookupMax, FuncLookup))
}
