package cli

import (
	"errors"
	"log/slog"
	"path/filepath"

	"github.com/deltarouter/deltarouter/internal/codefolder"
)

// Compiled is the folder for the machine code of modules.
type Compiled struct{ named string }

// AddFlag adds -compiled.
func (c *Compiled) AddFlag(f *Flags) { c.add(f, "") }

// AddFlagOfRouter adds -compiled to a command with a state folder.
func (c *Compiled) AddFlagOfRouter(f *Flags) { c.add(f, ", or else in state.dir") }

func (c *Compiled) add(f *Flags, otherwise string) {
	f.Func("compiled", "`FOLDER` keep the machine code of modules here, where no other user may write; none: in memory only "+
		"(default: the cache folder of the user"+otherwise+")", func(text string) (err error) {
		if c.named = text; text == "" {
			return errors.New("it is empty: give a folder, or none")
		}
		if text != codefolder.None {
			c.named, err = filepath.Abs(text) // a relative one must not be another one later
		}
		return err
	})
}

// Folder returns the folder; empty: there is none. It logs why one is refused.
func (c *Compiled) Folder(log *slog.Logger) string {
	if dir := c.FolderOrNone(log); dir != codefolder.None {
		return dir
	}
	return ""
}

// FolderOrNone returns the folder as [codefolder.Choose] does. It logs why one is refused.
func (c *Compiled) FolderOrNone(log *slog.Logger) string {
	dir, err := codefolder.Choose(c.named)
	if err != nil {
		log.Warn("a folder for compiled modules is not used, because their code runs with the rights of this process", "err", err)
	}
	return dir
}
