// Prints what Go's pflag makes of each list of words in cases.json: one JSON object a line, for tests/vectors/pflag.json.
// Run: cd tests/vectors/pflag && go run . < cases.json > ../pflag.json
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
)

// verbosity reads a decimal int32, as klog's Level does.
type verbosity int32

func (v *verbosity) String() string { return strconv.Itoa(int(*v)) }
func (v *verbosity) Type() string   { return "Level" }
func (v *verbosity) Set(text string) error {
	value, err := strconv.ParseInt(text, 10, 32)
	*v = verbosity(value)
	return err
}

type answer struct {
	Words []string       `json:"words"`
	Error bool           `json:"error"`
	Given map[string]any `json:"given,omitempty"`
	Rest  []string       `json:"rest,omitempty"`
}

func read(words []string) answer {
	set := pflag.NewFlagSet("t", pflag.ContinueOnError)
	set.SetOutput(io.Discard)
	set.Usage = func() {}
	set.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		return pflag.NormalizedName(strings.ReplaceAll(name, "_", "-"))
	})
	whole := set.Int("max-nodes-total", 0, "")
	var level verbosity
	set.VarP(&level, "v", "v", "")
	share := set.Float64("scale-down-utilization-threshold", 0, "")
	flag := set.Bool("leader-elect", true, "")
	other := set.Bool("skip-nodes-with-local-storage", true, "")
	wait := set.Duration("scan-interval", 0, "")
	text := set.String("namespace", "", "")
	nodes := set.StringArray("nodes", nil, "")
	names := set.StringSlice("allowed-scheduler-names", nil, "")
	err := set.Parse(words)
	if err != nil {
		return answer{Words: words, Error: true}
	}
	given := map[string]any{}
	set.Visit(func(f *pflag.Flag) {
		switch f.Name {
		case "max-nodes-total":
			given[f.Name] = fmt.Sprint(*whole)
		case "v":
			given[f.Name] = level.String()
		case "scale-down-utilization-threshold":
			given[f.Name] = fmt.Sprintf("%.17g", *share)
		case "leader-elect":
			given[f.Name] = fmt.Sprint(*flag)
		case "skip-nodes-with-local-storage":
			given[f.Name] = fmt.Sprint(*other)
		case "scan-interval":
			given[f.Name] = fmt.Sprint(wait.Milliseconds())
		case "namespace":
			given[f.Name] = *text
		case "nodes":
			given[f.Name] = *nodes
		case "allowed-scheduler-names":
			given[f.Name] = *names
		}
	})
	return answer{Words: words, Given: given, Rest: set.Args()}
}

func main() {
	var cases [][]string
	if err := json.NewDecoder(os.Stdin).Decode(&cases); err != nil {
		panic(err)
	}
	out := json.NewEncoder(os.Stdout)
	out.SetEscapeHTML(false)
	for _, words := range cases {
		if err := out.Encode(read(words)); err != nil {
			panic(err)
		}
	}
}
