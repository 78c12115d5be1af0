package module

import (
	"strings"

	"github.com/deltarouter/deltarouter/internal/fields"
	"github.com/deltarouter/deltarouter/internal/oci"
	"github.com/deltarouter/deltarouter/pkg/config"
)

// Fields returns the fields that guests get of each object, as keys: those of the configuration, or
// those that a file with a sha256 declares if the configuration has none (nil). The hash makes them
// a part of the configuration, because a cache that keeps only these fields relies on them. None:
// all fields, or they are not known. longest bounds the size of the file.
func (s *Source) Fields(configured []string, longest config.Size) [][]string {
	if configured != nil || s.SHA256 == "" || oci.IsRef(s.Module) {
		return fields.Keys(configured)
	}
	module, err := readFile(s.Module, int64(longest))
	if err != nil {
		return nil // Open reports it
	}
	if !strings.EqualFold(digestOf(module), s.SHA256) {
		return nil
	}
	declared, err := fields.Declared(module)
	if err != nil {
		return nil
	}
	return fields.Keys(declared.Paths())
}
