"""Charts and tables as markup, drawn without any library: for pages, notebooks and files."""

from forebay.drawing.chart import Chart as Chart
from forebay.drawing.chart import Series as Series
from forebay.drawing.chart import Subplot as Subplot
from forebay.drawing.chart import Tip as Tip
