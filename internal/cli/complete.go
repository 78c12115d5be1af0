package cli

import (
	"context"
	"embed"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/deltarouter/deltarouter/internal/config/files"
	"github.com/deltarouter/deltarouter/pkg/config"
)

//go:embed completion
var scripts embed.FS

// completeWord is the hidden command that the scripts of completion call with the words of the
// command line up to the cursor. It prints one candidate a line, with a tab and a description
// behind it, and directives:
//   - :file, :folder: the shell completes the name of a file or folder.
//   - :nospace: no space follows a candidate.
const completeWord = "__complete"

// CompletionCommand prints the completion script of a shell.
func CompletionCommand() Command {
	return Command{
		Name:    "completion",
		Args:    "bash|zsh|fish",
		Summary: "Print the completion script of a shell",
		Description: `
The script completes commands, flags and their values, files, and the names of sources, routes and indexes of the
configuration: of -config, else of $` + ConfigVariable + ` or ` + ConfigDefault + `.`,
		Examples: []Example{
			{Line: "source <(router completion bash)", Text: "this shell; put the line into ~/.bashrc for all"},
			{Line: "source <(router completion zsh)", Text: "the same in ~/.zshrc"},
			{Line: "router completion fish > ~/.config/fish/completions/router.fish", Text: "all shells of fish"},
		},
		Setup: func(*Flags) Run {
			return func(_ context.Context, s Streams, args []string) error {
				shells := []string{"bash", "zsh", "fish"}
				switch {
				case len(args) != 1:
					return Mistakef("name the shell: %s", orList(shells))
				case !slices.Contains(shells, args[0]):
					return Mistakef("there is no completion for %s: write %s%s", args[0], orList(shells), didYouMean(args[0], "", shells))
				}
				text, err := scripts.ReadFile("completion/router." + args[0])
				if err == nil {
					_, err = s.Out.Write(text)
				}
				return err
			}
		},
	}
}

// completion finds the candidates for the last word of a command line.
type completion struct {
	words []string // before the last
	last  string
	lines []string
}

// complete prints the candidates for the last word.
func (p *Program) complete(s Streams, words []string) {
	if len(words) == 0 {
		return
	}
	end := len(words) - 1
	c := &completion{words: words[:end], last: words[end]}
	if len(c.words) > 0 && c.words[0] == "help" {
		c.words = c.words[1:]
		if at, _, rest, err := p.resolve(c.words); err == nil && len(rest) == 0 {
			c.commands(at)
		}
	} else if at, _, rest, err := p.resolve(c.words); err == nil {
		c.command(p, at, rest)
	}
	for _, line := range c.lines {
		fmt.Fprintln(s.Out, line)
	}
}

// command adds the candidates behind a command and the words that follow it.
func (c *completion) command(p *Program, at *Command, rest []string) {
	if len(rest) == 0 && !isFlag(c.last) {
		c.commands(at)
		if at == &p.Command {
			c.add("help", "Print the help of a command")
		}
	}
	if at == &p.Command {
		at = p.find(p.Default)
	}
	if at == nil || at.Setup == nil {
		return
	}
	flags := newFlags()
	at.Setup(flags)
	args, waiting := flags.split(rest)
	name, _, given := strings.Cut(c.last, "=")
	switch {
	case waiting != "":
		c.value(flags, waiting, "", args)
	case strings.HasPrefix(c.last, "-") && given:
		c.value(flags, strings.TrimLeft(name, "-"), name+"=", args)
	case strings.HasPrefix(c.last, "-"):
		dashes := "-"
		if strings.HasPrefix(c.last, "--") {
			dashes = "--"
		}
		for _, name := range flags.names() {
			_, usage := unquote(flags.Lookup(name))
			c.add(dashes+name, usage)
		}
	default:
		c.kinds(at.argument(len(args)), "", args)
	}
}

func (c *completion) commands(at *Command) {
	for i := range at.Commands {
		c.add(at.Commands[i].Name, at.Commands[i].Summary)
	}
}

// add adds a candidate if it begins with the last word.
func (c *completion) add(text, description string) {
	if strings.HasPrefix(text, c.last) && !slices.Contains(c.lines, text) {
		c.lines = append(c.lines, strings.TrimSuffix(text+"\t"+description, "\t"))
	}
}

// value adds the candidates for the value of a flag. The prefix stands before the value in the last
// word.
func (c *completion) value(flags *Flags, name, prefix string, args []string) {
	f := flags.Lookup(name)
	switch {
	case f == nil:
	case isBool(f):
		c.kinds([]string{"true", "false"}, prefix, args)
	default:
		c.kinds(strings.Split(placeholder(f), "|"), prefix, args)
	}
}

// kinds adds the candidates for placeholders.
func (c *completion) kinds(placeholders []string, prefix string, args []string) {
	for _, placeholder := range placeholders {
		switch placeholder {
		case "FILE", "RECORDING":
			c.lines = append(c.lines, ":file")
		case "FOLDER":
			if !slices.Contains(placeholders, "FILE") {
				c.lines = append(c.lines, ":folder")
			}
		case "SOURCE", "ROUTE":
			for _, name := range c.names(placeholder, args) {
				c.add(prefix+name, "")
			}
		case "INDEX=VALUE":
			for _, name := range c.names(placeholder, args) {
				c.add(prefix+name+"=", "")
			}
			c.lines = append(c.lines, ":nospace")
		default:
			value, _, open := strings.Cut(placeholder, "=") // jsonpath=TEMPLATE
			if value != strings.ToLower(value) {
				continue
			}
			if open {
				value += "="
				c.lines = append(c.lines, ":nospace")
			}
			c.add(prefix+value, "")
		}
	}
}

// names returns the names that the configuration has for a placeholder.
func (c *completion) names(placeholder string, args []string) (names []string) {
	path := c.configuration()
	if path == files.Stdin {
		return nil
	}
	cfg, _ := config.Load(path, config.Policy{})
	if cfg == nil {
		return nil
	}
	switch placeholder {
	case "SOURCE":
		return slices.Sorted(maps.Keys(cfg.Sources))
	case "ROUTE":
		for _, r := range cfg.Routes {
			if r != nil && r.Name != "" {
				names = append(names, r.Name)
			}
		}
		return names
	}
	names = []string{"name", "namespace", "owner"}
	for name, source := range cfg.Sources {
		if source != nil && (len(args) == 0 || args[0] == name) {
			names = slices.AppendSeq(names, maps.Keys(source.Indexes))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// configuration returns the path of the configuration that the command line names.
func (c *completion) configuration() (path string) {
	f := newFlags()
	f.ConfigVar(&path, "")
	for i, word := range c.words {
		name, value, given := strings.Cut(strings.TrimLeft(word, "-"), "=")
		switch {
		case !isFlag(word) || name != "config":
		case given:
			path = value
		case i+1 < len(c.words):
			path = c.words[i+1]
		}
	}
	return path
}

// split returns the arguments among words, and the flag whose value is missing at their end.
func (f *Flags) split(words []string) (args []string, waiting string) {
	for i := 0; i < len(words); i++ {
		name, _, given := strings.Cut(strings.TrimLeft(words[i], "-"), "=")
		one := f.Lookup(name)
		switch {
		case !isFlag(words[i]):
			args = append(args, words[i])
		case given || one == nil || isBool(one):
		case i+1 == len(words):
			return args, name
		default:
			i++
		}
	}
	return args, ""
}

// argument returns the placeholders of the argument with a number.
func (c *Command) argument(number int) []string {
	text := strings.NewReplacer("[", "", "]", "", " | ", "|").Replace(c.Args)
	all := strings.Fields(strings.TrimSuffix(text, "…"))
	switch {
	case number < len(all):
	case strings.HasSuffix(text, "…") && len(all) > 0:
		number = len(all) - 1
	default:
		return nil
	}
	placeholders := strings.Split(all[number], "|")
	for i := range placeholders {
		placeholders[i], _, _ = strings.Cut(placeholders[i], "/")
	}
	return placeholders
}
