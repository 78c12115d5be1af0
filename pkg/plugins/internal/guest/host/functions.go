package host

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/deltarouter/deltarouter/internal/rawjson"
	"github.com/deltarouter/deltarouter/pkg/plugins/internal/guest/abi"
)

// hostModule is the module of the host functions.
const hostModule = "rtr_v1"

// hostFunction is a function that guests may import. It never panics, for any arguments, and waits
// no longer than its context.
type hostFunction struct {
	name           string
	params, result string // one letter per value: i is an i32, I an i64
	grant          string // the required grant; empty: none
	call           func(context.Context, *hostCall) int64
}

// The grants, as in the configuration.
const (
	grantKV     = "allow: {kv: true}"
	grantLookup = "allow: {lookup: [source.index]}"
	grantHTTP   = `allow: {http: [{host: "name:443"}]}`
)

// hostFunctions returns all host functions of the ABI.
func hostFunctions() []hostFunction {
	return []hostFunction{
		{"log", "iii", "i", "", hostLog},
		{"config_get", "iiii", "i", "", hostConfig},
		{"now_ns", "", "I", "", hostNow},
		{"random", "ii", "i", "", hostRandom},
		{"emit", "iii", "i", "", hostEmit},
		{"field", "iiii", "I", "", hostField},
		{"kv_get", "iiii", "i", grantKV, hostKVGet},
		{"kv_set", "iiiiI", "i", grantKV, hostKVSet},
		{"kv_del", "ii", "i", grantKV, hostKVDel},
		{"lookup", "iiii", "i", grantLookup, hostLookup},
		{"http", "iiii", "i", grantHTTP, hostHTTP},
	}
}

func (f *hostFunction) granted(a *Allow) bool {
	switch f.grant {
	case grantKV:
		return a.KV
	case grantLookup:
		return len(a.Lookup) > 0
	case grantHTTP:
		return len(a.HTTP) > 0
	}
	return true
}

// Provide adds the functions that the handler is granted to a runtime.
func (r *Host) Provide(ctx context.Context, runtime wazero.Runtime) error {
	b := runtime.NewHostModuleBuilder(hostModule)
	for _, f := range hostFunctions() {
		if f.granted(&r.allow) {
			f.export(b)
		}
	}
	_, err := b.Instantiate(ctx)
	return err
}

// export adds the function to a module.
func (f *hostFunction) export(b wazero.HostModuleBuilder) {
	call := hostFunc{f.call, f.result == "I"}
	b.NewFunctionBuilder().WithGoModuleFunction(call, types(f.params), types(f.result)).Export(f.name)
}

func types(letters string) []api.ValueType {
	all := make([]api.ValueType, len(letters))
	for i, letter := range letters {
		all[i] = api.ValueTypeI32
		if letter == 'I' {
			all[i] = api.ValueTypeI64
		}
	}
	return all
}

// missingGrants returns the grants that imports need and the configuration lacks, and the unknown
// imports.
func missingGrants(imports []string) (missing []string, unknown []string) {
	var grants []string
	names := make(map[string][]string)
	for _, name := range imports {
		at := slices.IndexFunc(hostFunctions(), func(f hostFunction) bool { return f.grant != "" && hostModule+"."+f.name == name })
		if at < 0 {
			unknown = append(unknown, name)
			continue
		}
		grant := hostFunctions()[at].grant
		if names[grant] == nil {
			grants = append(grants, grant)
		}
		names[grant] = append(names[grant], name)
	}
	for _, grant := range grants {
		missing = append(missing, fmt.Sprintf("it imports %s: add %s", strings.Join(names[grant], ", "), grant))
	}
	return missing, unknown
}

// hostCall is one call of a host function.
type hostCall struct {
	scope  *Scope
	memory api.Memory
	stack  []uint64 // the arguments
}

// u32 returns an argument.
func (c *hostCall) u32(i int) uint32 { return uint32(c.stack[i]) }

// charge uses fuel in addition to that of the call. It ends the guest if there is too little.
func (c *hostCall) charge(fuel int64) { c.scope.tank.charge(fuel) }

// hostFunc implements [api.GoModuleFunction]. The arguments and the result are on the stack.
type hostFunc struct {
	call func(context.Context, *hostCall) int64
	wide bool // the result is an i64
}

// Call implements [api.GoModuleFunction].
func (f hostFunc) Call(ctx context.Context, m api.Module, stack []uint64) {
	result := int64(abi.StatusInvalid)
	if s, memory := scopeOf(ctx), m.Memory(); s != nil && memory != nil {
		// part of the scope, to avoid an allocation
		s.hostCall = hostCall{scope: s, memory: memory, stack: stack}
		s.tank.charge(callFuel)
		result = f.call(ctx, &s.hostCall)
	}
	if f.wide {
		stack[0] = api.EncodeI64(result)
	} else {
		stack[0] = api.EncodeI32(int32(result)) //nolint:gosec // lengths are limited
	}
}

// hostLog implements log(level, text, size): 0 debug, 1 info, 2 warn, 3 error.
func hostLog(ctx context.Context, c *hostCall) int64 {
	level := c.u32(0)
	text, ok := c.memory.Read(c.u32(1), c.u32(2))
	if !ok || level > 3 {
		return abi.StatusInvalid
	}
	c.scope.say(ctx, level, text)
	return abi.StatusOK
}

// say logs a line with a level of the ABI.
func (s *Scope) say(ctx context.Context, level uint32, text []byte) {
	s.tank.charge(lineFuel + textFuel(min(len(text), int(s.limits.LogLine))))
	s.host.log.Line(ctx, slog.Level(4*int(level)-4), "log", text)
}

// hostConfig implements config_get(key, keySize, buf, limit). It writes the JSON of a key of the
// configuration, or the whole configuration if the key is empty, and returns the length. If the
// length exceeds limit, it writes nothing.
func hostConfig(_ context.Context, c *hostCall) int64 {
	key, ok := c.memory.Read(c.u32(0), c.u32(1))
	if !ok {
		return abi.StatusInvalid
	}
	value := rawjson.Value(c.scope.host.config)
	c.charge(copyFuel(len(value)))
	if len(key) > 0 {
		c.charge(parseFuel(len(value))) // for parsing
		value = member(value, key)
	}
	if value.Kind() == rawjson.Absent {
		return abi.StatusNotFound
	}
	if uint64(len(value)) <= uint64(c.u32(3)) && !c.memory.WriteString(c.u32(2), string(value)) {
		return abi.StatusInvalid
	}
	return int64(len(value))
}

// member returns the member of value with a key. The key may be longer than value.
func member(value rawjson.Value, key []byte) rawjson.Value {
	if len(key) > len(value) {
		return ""
	}
	return value.Get(string(key))
}
