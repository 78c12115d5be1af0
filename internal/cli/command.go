package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/deltarouter/deltarouter/internal/similar"
)

// The exit codes.
const (
	CodeOK     = 0
	CodeFailed = 1 // the command failed while it ran
	CodeUsage  = 2 // the command line, the configuration or another input has a mistake
)

// Command is one command of a program. Its help and its completion are made from it.
type Command struct {
	Name        string // one word
	Args        string // the arguments, as in [SOURCE [NAME]]; empty: it takes none
	Summary     string // one line for the list of commands, without a full stop
	Description string // more, in paragraphs with an empty line between them
	Examples    []Example

	// Setup declares the flags and returns the function that runs the command. It is called once
	// for each use, also for help and completion, and must have no effect but that.
	Setup func(f *Flags) Run

	// Commands are the commands below this one, as list is below dlq. A command may have both, as
	// schema does.
	Commands []Command
}

// Example is a command line with an explanation.
type Example struct{ Line, Text string }

// Run runs a command. Args are the arguments without flags.
//
// The error decides the exit code and the message:
//   - nil: 0.
//   - [Exit]: its number, without a message.
//   - [Mistakef]: 2. The message ends with a pointer to the help.
//   - [Invalid], config.Problems: 2.
//   - any other: 1.
type Run func(ctx context.Context, s Streams, args []string) error

// Streams are the streams of a command.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer // control characters are escaped
	Raw      io.Writer // standard output as it is, for data
}

// Exit ends a command with an exit code. The message was printed already.
type Exit int

// Error implements error.
func (e Exit) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// mistake is a mistake in the command line.
type mistake string

// Error implements error.
func (m mistake) Error() string { return string(m) }

// Mistakef returns an error about the command line: one line, without a full stop.
func Mistakef(format string, args ...any) error { return mistake(fmt.Sprintf(format, args...)) }

// Invalid marks an error about something that was named on the command line, as a file.
func Invalid(err error) error {
	if err == nil {
		return nil
	}
	return invalid{err}
}

type invalid struct{ error }

// Unwrap returns the error.
func (i invalid) Unwrap() error { return i.error }

// Program is a tree of commands.
type Program struct {
	Command

	Default string // the command that flags alone are for
	Version string // the command that -version is short for
}

// Main runs a command line and returns the exit code.
func (p *Program) Main(ctx context.Context, s Streams, args []string) int {
	if len(args) == 0 {
		p.help(s.Err, p.Name, &p.Command)
		return CodeUsage
	}
	name := p.Name
	switch first := args[0]; {
	case first == "help":
		return p.explain(s, args[1:])
	case first == completeWord:
		p.complete(s, args[1:])
		return CodeOK
	case isHelp(first):
		return p.explain(s, nil)
	case strings.TrimLeft(first, "-") == "version" && p.Version != "":
		args = append([]string{p.Version}, args[1:]...)
	case isFlag(first) && p.Default != "":
		c := p.find(p.Default)
		if late := p.lateCommand(c, args); late != "" {
			return p.end(s, name, name+" help", Mistakef("flags come behind the command, as in %s %s -config FILE", name, late))
		}
		return p.start(ctx, s, c, name, name+" help "+c.Name, args)
	}
	c, name, rest, err := p.resolve(args)
	switch {
	case err != nil:
		return p.end(s, name, pointer(p.Name, name), err)
	case c.Setup == nil && len(rest) == 0:
		p.help(s.Err, name, c)
		return CodeUsage
	case len(rest) > 0 && isHelp(rest[0]), len(rest) == 1 && rest[0] == "help":
		p.help(s.Out, name, c)
		return CodeOK
	}
	return p.start(ctx, s, c, name, pointer(p.Name, name), rest)
}

// lateCommand returns the name of a command behind the flags of the default command.
func (p *Program) lateCommand(c *Command, args []string) string {
	flags := newFlags()
	c.Setup(flags)
	if words, _ := flags.split(args); len(words) > 0 && p.find(words[0]) != nil {
		return words[0]
	}
	return ""
}

// start runs a command, or prints its help if the flags ask for it.
func (p *Program) start(ctx context.Context, s Streams, c *Command, name, help string, args []string) int {
	err := c.run(ctx, s, args)
	if errors.Is(err, errHelp) {
		p.help(s.Out, name, c)
		return CodeOK
	}
	return p.end(s, name, help, err)
}

// explain prints the help of a command, or of the program.
func (p *Program) explain(s Streams, words []string) int {
	c, name, rest, err := p.resolve(words)
	if err == nil && len(rest) > 0 && !isHelp(rest[0]) && rest[0] != "help" {
		err = Mistakef("there is no command %q below it", rest[0])
	}
	if err != nil {
		return p.end(s, name, pointer(p.Name, name), err)
	}
	p.help(s.Out, name, c)
	return CodeOK
}

// resolve finds the command that the first words name, its full name, and the words behind it.
func (p *Program) resolve(words []string) (c *Command, name string, rest []string, err error) {
	c, name = &p.Command, p.Name
	for len(c.Commands) > 0 && len(words) > 0 && !isFlag(words[0]) && words[0] != "help" {
		next := c.find(words[0])
		if next == nil {
			return c, name, nil, Mistakef("there is no command %q%s", words[0], didYouMean(words[0], "", c.names()))
		}
		c, name, words = next, name+" "+next.Name, words[1:]
	}
	return c, name, words, nil
}

func (c *Command) find(name string) *Command {
	for i := range c.Commands {
		if c.Commands[i].Name == name {
			return &c.Commands[i]
		}
	}
	return nil
}

// names returns the names of the commands below c.
func (c *Command) names() (names []string) {
	for i := range c.Commands {
		names = append(names, c.Commands[i].Name)
	}
	return names
}

// run parses the flags and runs the command.
func (c *Command) run(ctx context.Context, s Streams, args []string) error {
	if c.Setup == nil {
		return Mistakef("%s comes behind the command: name one of %s", args[0], strings.Join(c.names(), ", "))
	}
	flags := newFlags()
	run := c.Setup(flags)
	rest, err := flags.parse(args)
	if err == nil && c.Args == "" && len(rest) > 0 {
		err = Mistakef("unexpected argument %q", rest[0])
	}
	if err != nil {
		return err
	}
	return run(ctx, s, rest)
}

// end prints the error of a command and returns the exit code.
func (p *Program) end(s Streams, name, help string, err error) int {
	var exit Exit
	var wrong mistake
	var input invalid
	var places interface{ Quoted() string }
	switch {
	case err == nil:
		return CodeOK
	case errors.As(err, &exit):
		return int(exit)
	case errors.As(err, &wrong):
		message := err.Error()
		if !strings.HasSuffix(message, "?") {
			message += "."
		}
		Printf(s.Err, "%s: %s See %s\n", name, message, help)
		return CodeUsage
	case errors.As(err, &places): // config.Problems: one line for each
		fmt.Fprintln(s.Err, places.Quoted())
		return CodeUsage
	case errors.As(err, &input):
		Printf(s.Err, "%s: %s\n", name, err.Error())
		return CodeUsage
	}
	Printf(s.Err, "%s: %s\n", name, err.Error())
	return CodeFailed
}

// pointer returns the command line that prints the help of a command.
func pointer(program, name string) string {
	return strings.TrimSpace(program + " help" + strings.TrimPrefix(name, program))
}

// didYouMean suggests nothing for one letter, from which any other letter differs by one mistake.
func didYouMean(name, prefix string, known []string) string {
	if near, ok := similar.Nearest(name, known); ok && len(name) > 1 {
		return fmt.Sprintf("; did you mean %q?", prefix+near)
	}
	return ""
}

func isFlag(word string) bool { return len(word) > 1 && word[0] == '-' }

func isHelp(word string) bool { return word == "-h" || word == "-help" || word == "--help" }
