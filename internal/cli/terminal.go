package cli

import (
	"io"
	"os"

	"golang.org/x/term"
)

// IsTerminal reports whether w is a terminal.
func IsTerminal(w io.Writer) bool {
	f, ok := w.(interface{ Fd() uintptr })
	return ok && term.IsTerminal(int(f.Fd()))
}

// The modes of colours.
const (
	ColorAuto = "auto"
	always    = "always"
	never     = "never"
)

// ColorModes lists the modes of colours, the default first.
func ColorModes() []string { return []string{ColorAuto, always, never} }

// Color is a way to write a word, as the parameters of the escape sequence SGR.
type Color string

// The colours.
const (
	Red    Color = "31"
	Green  Color = "32"
	Yellow Color = "33"
	Cyan   Color = "36"
	Faint  Color = "2"
	Bold   Color = "1"
)

// Paint colours text. The zero Paint leaves text as it is.
type Paint struct{ on bool }

// NewPaint returns the Paint for w. With the mode auto it colours if w is a terminal that knows
// colours, and NO_COLOR (https://no-color.org) is not set.
func NewPaint(w io.Writer, mode string) Paint {
	if mode == ColorAuto {
		return Paint{IsTerminal(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
	}
	return Paint{mode == always}
}

// Text returns the text in a colour.
func (p Paint) Text(c Color, text string) string {
	if !p.on || c == "" || text == "" {
		return text
	}
	return "\x1b[" + string(c) + "m" + text + "\x1b[0m"
}
