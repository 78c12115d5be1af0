package router_test

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/deltarouter/deltarouter/pkg/plugins/stdout"
	"github.com/deltarouter/deltarouter/pkg/plugins/webhook"
	"github.com/deltarouter/deltarouter/pkg/router"
)

// main is the main function of a router with two kinds of sinks.
func main() { router.Main(stdout.Kind(), webhook.Kind()) }

// The program has all commands. Its configurations may use the listed kinds only.
func ExampleMain() {
	command := exec.Command(os.Args[0], "check", "testdata/config.yaml")
	command.Env = append(os.Environ(), "PROGRAM=router")
	output, err := command.CombinedOutput()
	fmt.Printf("%s%v\n", output, err)
	// Output:
	// testdata/config.yaml:5:20: sinks.chat.webhook.ulr: unknown key; did you mean "url"?
	// testdata/config.yaml:6:11: sinks.events: unknown kind of sink "kafka"; there are: stdout, webhook
	// exit status 2
}

// TestMain runs the program in a process of its own, because router.Main ends the process.
func TestMain(m *testing.M) {
	if os.Getenv("PROGRAM") == "router" {
		main()
	}
	os.Exit(m.Run())
}
