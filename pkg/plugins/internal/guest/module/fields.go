package module

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/deltarouter/deltarouter/internal/fields"
	"github.com/deltarouter/deltarouter/internal/oci"
	"github.com/deltarouter/deltarouter/pkg/config"
)

// Fields returns the fields that guests get of each object, as keys: those of the configuration, or,
// if it leaves them to the module (nil), those that a file with a sha256 declares. The hash makes
// them a part of the configuration, as caches need that keep no other fields. None: all fields, or
// they are not known. longest bounds the size of the file.
func (s *Source) Fields(configured []string, longest config.Size) [][]string {
	if configured != nil || s.SHA256 == "" || oci.IsRef(s.Module) {
		return fields.Keys(configured)
	}
	module, err := readFile(s.Module, int64(longest))
	if err != nil {
		return nil // Open reports it
	}
	if sum := sha256.Sum256(module); !strings.EqualFold(hex.EncodeToString(sum[:]), s.SHA256) {
		return nil
	}
	declared, err := fields.Declared(module)
	if err != nil {
		return nil
	}
	return fields.Keys(declared.Paths())
}
