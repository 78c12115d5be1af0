package host

import (
	"errors"
	"fmt"
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

// CheckImports returns an error about all imports that the router does not provide, before the
// module is compiled.
func (r *Host) CheckImports(imports []meter.Import) error {
	have := r.provided()
	var missing []string
	for _, im := range imports {
		shown := printable.Clean(im.Module, longestName) + "." + printable.Clean(im.Name, longestName)
		want := signatureOf(im.Params, im.Results)
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
	problems, unknown := missingGrants(missing)
	if unknown != nil {
		problems = append(problems, "it imports what the router does not give: "+strings.Join(unknown, ", "))
	}
	if problems != nil {
		return errors.New(strings.Join(problems, "; "))
	}
	return nil
}

// provided returns the signatures of the functions that guests may import, by module and name.
func (r *Host) provided() map[[2]string]string {
	all := make(map[[2]string]string)
	for _, f := range wasiFunctions() {
		all[[2]string{wasiModule, f.name}] = signatureOf(types(f.params), types(f.result))
	}
	for _, f := range hostFunctions() {
		if f.granted(&r.allow) {
			all[[2]string{hostModule, f.name}] = signatureOf(types(f.params), types(f.result))
		}
	}
	return all
}

// Signature returns the types of a function for messages.
func Signature(f api.FunctionDefinition) string { return signatureOf(f.ParamTypes(), f.ResultTypes()) }

func signatureOf(params, results []api.ValueType) string {
	return "(" + valueTypes(params) + ") → (" + valueTypes(results) + ")"
}

func valueTypes(types []api.ValueType) string {
	names := make([]string, len(types))
	for i, t := range types {
		names[i] = api.ValueTypeName(t)
	}
	return strings.Join(names, ", ")
}
