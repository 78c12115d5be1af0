package guest

import (
	"errors"
	"fmt"

	"github.com/deltarouter/deltarouter/internal/fields"
	"github.com/deltarouter/deltarouter/pkg/config"
)

// Description describes a handler to [New].
type Description struct {
	Kind   string   // of the configuration
	Digest string   // SHA-256 of what it runs, in hexadecimal digits
	Fields []string // that its guests get; nil: those that the module declares, empty: all
}

// fieldsOf returns the fields that the guests of a handler get: those of the configuration, or
// those that the module declares.
func (d *Description) fieldsOf(module []byte) (set *fields.Set, declared bool, err error) {
	if d.Fields != nil {
		set, err = fields.New(d.Fields)
		return set, false, err
	}
	if set, err = fields.Declared(module); err != nil {
		return nil, false, fmt.Errorf("%w: correct the module, or set fields", err)
	}
	return set, set != nil, nil
}

// CheckConfig returns the problems of the section `config` of a handler, which must be JSON for its
// guest. n is the configuration of the handler.
func CheckConfig(n, section config.Node) config.Problems {
	_, err := section.JSON()
	if err == nil {
		return nil
	}
	if problems, ok := errors.AsType[config.Problems](err); ok {
		return problems
	}
	return config.Problems{n.At("config").Problemf("%v", err)}
}
