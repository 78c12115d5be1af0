package host

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tetratelabs/wazero/api"

	"github.com/deltarouter/deltarouter/internal/meter"
	"github.com/deltarouter/deltarouter/internal/printable"
)

// Limits of an error about imports, because the module chooses their names.
const (
	longestName = 100 // bytes
	mostMissing = 20
)

// CheckImports returns an error about all imports of a module for the ABI rtr_v1 that the router
// does not provide, before the module is compiled.
func (r *Host) CheckImports(imports []meter.Import) error {
	problems, unknown := missingGrants(missingImports(imports, r.functions()))
	if slices.ContainsFunc(unknown, func(name string) bool { return strings.HasPrefix(name, "extism:host/") }) {
		problems = append(problems, "it is a module for Extism: write `extism:` in place of `wasm:`")
		unknown = nil
	}
	return unprovided(problems, unknown)
}

// CheckImports returns an error about all imports that are neither functions of WASI nor among
// functions, which has their signatures by module and name.
func CheckImports(imports []meter.Import, functions map[[2]string]string) error {
	return unprovided(nil, missingImports(imports, functions))
}

// missingImports returns the imports that are neither functions of WASI nor among functions.
func missingImports(imports []meter.Import, functions map[[2]string]string) (missing []string) {
	have := wasiSignatures()
	maps.Copy(have, functions)
	for _, im := range imports {
		shown := printable.Clean(im.Module, longestName) + "." + printable.Clean(im.Name, longestName)
		want := SignatureOf(im.Params, im.Results)
		switch given := have[[2]string{im.Module, im.Name}]; {
		case im.Kind != meter.ImportFunction:
			missing = append(missing, fmt.Sprintf("%s (a %s)", shown, im.Kind))
		case given == "":
			missing = append(missing, shown)
		case given != want:
			missing = append(missing, fmt.Sprintf("%s as %s (it is %s)", shown, printable.Clean(want, 2*longestName), given))
		}
	}
	if more := len(missing) - mostMissing; more > 0 {
		missing = append(missing[:mostMissing], fmt.Sprintf("and %d more", more))
	}
	return missing
}

// unprovided returns an error about problems and unknown imports, if there are any.
func unprovided(problems, unknown []string) error {
	if slices.ContainsFunc(unknown, ofComponents) {
		problems = append(problems, "it imports interfaces of components (WASI 0.2 or later), which the router does not give: "+BuildForWASI1)
		unknown = slices.DeleteFunc(unknown, ofComponents)
	}
	if len(unknown) > 0 {
		problems = append(problems, "it imports what the router does not give: "+strings.Join(unknown, ", "))
	}
	if problems != nil {
		return errors.New(strings.Join(problems, "; "))
	}
	return nil
}

// BuildForWASI1 is the remedy for a module that was built for another WASI than preview 1.
const BuildForWASI1 = "build it for WASI preview 1, which toolchains call wasm32-wasip1 or wasip1"

// ofComponents reports whether an import belongs to an interface in the sense of the component
// model, whose name is namespace:package/interface@version. Core modules that are about to become
// components import from those.
func ofComponents(name string) bool {
	namespace, rest, ok := strings.Cut(name, ":")
	return ok && strings.HasPrefix(namespace, "wasi") && strings.Contains(rest, "/")
}

// wasiSignatures returns the signatures of the functions of WASI, by module and name.
func wasiSignatures() map[[2]string]string {
	all := make(map[[2]string]string)
	for _, f := range wasiFunctions() {
		all[[2]string{wasiModule, f.name}] = SignatureOf(types(f.params), types(f.result))
	}
	return all
}

// functions returns the signatures of the functions of the ABI rtr_v1 that the handler is granted.
func (r *Host) functions() map[[2]string]string {
	all := make(map[[2]string]string)
	for _, f := range hostFunctions() {
		if f.granted(&r.allow) {
			all[[2]string{hostModule, f.name}] = SignatureOf(types(f.params), types(f.result))
		}
	}
	return all
}

// Signature returns the types of a function for messages.
func Signature(f api.FunctionDefinition) string { return SignatureOf(f.ParamTypes(), f.ResultTypes()) }

// SignatureOf returns the types of a function for messages.
func SignatureOf(params, results []api.ValueType) string {
	return "(" + valueTypes(params) + ") → (" + valueTypes(results) + ")"
}

func valueTypes(types []api.ValueType) string {
	names := make([]string, len(types))
	for i, t := range types {
		names[i] = api.ValueTypeName(t)
	}
	return strings.Join(names, ", ")
}
