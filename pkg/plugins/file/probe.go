package file

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/deltarouter/deltarouter/pkg/config"
)

// probe finds out whether the file can be written to, and made if it is not there, without leaving a trace.
func probe(_ context.Context, node config.Node) error {
	var c Config
	if err := node.Decode(&c).Err(); err != nil {
		return err
	}
	f, err := os.OpenFile(c.Path, os.O_WRONLY|os.O_APPEND, 0)
	if err == nil {
		info, err := f.Stat()
		if err == nil && !info.Mode().IsRegular() {
			err = fmt.Errorf("%s is no regular file", c.Path)
		}
		return errors.Join(err, f.Close())
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	made, err := os.CreateTemp(filepath.Dir(c.Path), ".probe-")
	if err != nil {
		return fmt.Errorf("the folder of the file: %w", err)
	}
	return errors.Join(made.Close(), os.Remove(made.Name()))
}
