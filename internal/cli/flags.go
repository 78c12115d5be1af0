package cli

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/deltarouter/deltarouter/internal/config/files"
)

// errHelp: the flags ask for help.
var errHelp = errors.New("help is asked for")

// Flags are the flags of a command. The declarations are those of the flag package; the usage text
// begins with the placeholder in backquotes, as in "`FILE` the file to read". The placeholder tells
// the completion what to propose: FILE, FOLDER, SOURCE, ROUTE, INDEX=VALUE, or the values
// themselves, as in `table|json`.
type Flags struct {
	*flag.FlagSet

	groups []group
}

// group is a part of the flags with a headline of its own.
type group struct {
	title string
	names []string
}

func newFlags() *Flags {
	return &Flags{FlagSet: flag.NewFlagSet("", flag.ContinueOnError)}
}

// Group lists the flags that add declares under a headline of their own.
func (f *Flags) Group(title string, add func()) {
	before := f.names()
	add()
	g := group{title: title}
	for _, name := range f.names() {
		if !slices.Contains(before, name) {
			g.names = append(g.names, name)
		}
	}
	f.groups = append(f.groups, g)
}

// names returns the names of all flags, sorted.
func (f *Flags) names() (names []string) {
	f.VisitAll(func(one *flag.Flag) { names = append(names, one.Name) })
	return names
}

// Given reports whether the command line sets a flag.
func (f *Flags) Given(name string) (given bool) {
	f.Visit(func(one *flag.Flag) { given = given || one.Name == name })
	return given
}

// The configuration that is taken if -config is not given.
const (
	ConfigVariable = "DELTAROUTER_CONFIG"
	ConfigDefault  = "config.yaml"
)

// ConfigVar declares -config.
func (f *Flags) ConfigVar(p *string, usage string) {
	path := os.Getenv(ConfigVariable)
	if path == "" {
		path = ConfigDefault
	}
	f.StringVar(p, "config", path, "`FILE` "+usage+": a file, a folder with files *.yaml, or - for standard input")
	f.Lookup("config").DefValue = "$" + ConfigVariable + " or " + ConfigDefault
}

// ConfigName returns the name of a configuration in messages.
func ConfigName(path string) string { return files.Name(path) }

// OptionalConfigVar declares -config for a command that can do without: config.yaml counts only if
// there is one.
func (f *Flags) OptionalConfigVar(p *string, usage string) {
	f.ConfigVar(p, usage)
	f.Lookup("config").DefValue += " if it exists"
	if _, err := os.Stat(*p); err != nil && os.Getenv(ConfigVariable) == "" {
		*p = ""
	}
}

// StringsVar declares a flag that may be given several times.
func (f *Flags) StringsVar(p *[]string, name, usage string) {
	f.Func(name, usage+"; may be given several times", func(text string) error {
		*p = append(*p, text)
		return nil
	})
}

// ChoiceVar declares a flag with a few possible values.
func (f *Flags) ChoiceVar(p *string, name, value string, choices []string, usage string) {
	*p = value
	f.Var(&choice{p, choices}, name, "`"+strings.Join(choices, "|")+"` "+usage)
}

// choice is one of a few values.
type choice struct {
	value   *string
	choices []string
}

// Set implements flag.Value.
func (c *choice) Set(text string) error {
	if !slices.Contains(c.choices, text) {
		return fmt.Errorf("write %s%s", orList(c.choices), didYouMean(text, "", c.choices))
	}
	*c.value = text
	return nil
}

// String implements flag.Value.
func (c *choice) String() string {
	if c.value == nil {
		return ""
	}
	return *c.value
}

// orList is a list in a sentence.
func orList(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// parse sets the flags, which may stand before, between and behind the arguments, with one dash or
// two. It returns the arguments.
func (f *Flags) parse(args []string) (rest []string, err error) {
	for len(args) > 0 {
		word := args[0]
		args = args[1:]
		switch {
		case word == "--":
			return append(rest, args...), nil
		case !isFlag(word):
			rest = append(rest, word)
			continue
		case isHelp(word):
			return nil, errHelp
		}
		name, value, given := strings.Cut(strings.TrimPrefix(word[1:], "-"), "=")
		one := f.Lookup(name)
		switch {
		case one == nil && strings.ContainsAny(name, " ()."):
			return nil, Mistakef("%q is no flag: put -- before an argument that begins with a dash", word)
		case one == nil:
			return nil, Mistakef("there is no flag -%s%s", name, didYouMean(name, "-", f.names()))
		case given:
		case isBool(one):
			value = "true"
		case len(args) == 0:
			return nil, Mistakef("-%s needs a value: write -%s %s", name, name, placeholder(one))
		default:
			value, args = args[0], args[1:]
		}
		if err := f.Set(name, value); err != nil {
			return nil, Mistakef("-%s %s: %s", name, value, remedy(one, err))
		}
	}
	return rest, nil
}

func isBool(f *flag.Flag) bool {
	b, ok := f.Value.(interface{ IsBoolFlag() bool })
	return ok && b.IsBoolFlag()
}

// remedy returns the required form of a value. Errors of the flag package ("parse error") lack it.
func remedy(f *flag.Flag, err error) string {
	getter, ok := f.Value.(flag.Getter)
	if !ok {
		return err.Error()
	}
	switch getter.Get().(type) {
	case bool:
		return "write true or false, or leave the value out"
	case time.Duration:
		return "write a number and a unit, as in 30s or 5m"
	case int, int64, uint, uint64:
		return "write a whole number"
	case float64:
		return "write a number"
	}
	return err.Error()
}

// placeholder names the value of a flag; a switch has none.
func placeholder(f *flag.Flag) string {
	name, _ := unquote(f)
	return name
}

// unquote splits the usage text of a flag into its placeholder and the description.
func unquote(f *flag.Flag) (name, usage string) {
	name, usage = flag.UnquoteUsage(f)
	if strings.HasPrefix(f.Usage, "`") {
		usage = strings.TrimSpace(strings.TrimPrefix(usage, name))
	}
	if isBool(f) {
		name = ""
	}
	return name, usage
}

// defaultOf returns the default of a flag if it is worth telling.
func defaultOf(f *flag.Flag) string {
	switch f.DefValue {
	case "", "false", "0", "0s":
		return ""
	}
	if d, err := time.ParseDuration(f.DefValue); err == nil && strings.HasSuffix(f.DefValue, "m0s") {
		return strconv.Itoa(int(d/time.Minute)) + "m"
	}
	return f.DefValue
}
